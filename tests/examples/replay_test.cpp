// What two_policies repeats its run from: records are checked, and other contributors give other weights.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "checkpoint.hpp"
#include "policies/replay.hpp"

namespace {

using namespace policies;
constexpr std::uint64_t kSeed = 5;

struct Directory {
  Directory() { std::filesystem::create_directory(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path = "/tmp/gradshm-replay-" + std::to_string(getpid());
};

std::vector<Record> records_of(const std::string& text) {
  const Directory directory;
  std::ofstream(directory.path + "/records") << text;
  return read_records(directory.path + "/records");
}

Record record_of(std::uint64_t round, std::uint64_t contributors) {
  Record record{.round = round, .members = 15, .contributors = contributors, .count = {}, .weight = {}};
  for (std::size_t policy = 0; policy < kPolicies; ++policy)
    for (int rank = 0; rank < kLearners; ++rank) {
      const std::size_t samples = samples_of(kSeed, rank, round, policy);
      if ((contributors >> rank & 1) != 0 && samples > 0) ++record.count[policy], record.weight[policy] += static_cast<double>(samples);
    }
  return record;
}

bool same_weights(const State& a, const State& b) { return std::memcmp(&a.weights, &b.weights, sizeof a.weights) == 0; }

}  // namespace

TEST_CASE("records are read in order") {
  const auto records = records_of("1 15 15 4 40 3 30\n2 15 11 3 35.5 3 30\n");
  REQUIRE(records.size() == 2);
  CHECK(records[1].contributors == 11);
  CHECK(records[1].weight[0] == 35.5);
}

TEST_CASE("records with a gap, with contributors that are no members, or with none are refused") {
  CHECK_THROWS_WITH_AS(records_of("1 15 15 4 40 3 30\n3 15 15 4 40 3 30\n"), doctest::Contains("round 2 should stand there"), std::runtime_error);
  CHECK_THROWS_WITH_AS(records_of("1 11 15 4 40 3 30\n"), doctest::Contains("no members"), std::runtime_error);
  CHECK_THROWS_AS(records_of("1 15 0 0 0 0 0\n"), std::runtime_error);
  CHECK_THROWS_AS(records_of(""), std::runtime_error);
}

TEST_CASE("a replay is the same every time, and another one with other contributors") {
  const State all = replay(kSeed, {record_of(1, 15), record_of(2, 15)});
  CHECK(all.round == 2);
  CHECK(same_weights(all, replay(kSeed, {record_of(1, 15), record_of(2, 15)})));
  CHECK(!same_weights(all, replay(kSeed, {record_of(1, 15), record_of(2, 11)})));
}

TEST_CASE("a record that counts others than its contributors is a contradiction") {
  Record wrong = record_of(1, 15);
  wrong.contributors = 11;
  CHECK_THROWS_WITH_AS(replay(kSeed, {wrong}), doctest::Contains("instead of 3"), std::runtime_error);
}

TEST_CASE("learners have uneven data, and one has none for policy b") {
  bool differ = false;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    CHECK(samples_of(kSeed, kWithoutB, round, 1) == 0);
    for (int rank = 0; rank < kLearners; ++rank) CHECK(samples_of(kSeed, rank, round, 0) > 0);
    differ = differ || samples_of(kSeed, 0, round, 0) != samples_of(kSeed, 1, round, 0);
  }
  CHECK(differ);
}

TEST_CASE("a checkpoint is read back whole, a missing one is none, and a short one is refused") {
  const Directory directory;
  const std::string path = directory.path + "/state";
  State state;
  CHECK(examples::checkpoint_round(path) == 0);
  CHECK(!examples::read_checkpoint(path, std::as_writable_bytes(std::span(&state, 1))));
  state.round = 7, state.weights[1][3] = 2.5f;
  examples::write_checkpoint(path, std::as_bytes(std::span(&state, 1)));
  State back;
  CHECK(examples::read_checkpoint(path, std::as_writable_bytes(std::span(&back, 1))));
  CHECK(std::memcmp(&state, &back, sizeof state) == 0);
  CHECK(examples::checkpoint_round(path) == 7);
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path), {}) == 1);
  std::filesystem::resize_file(path, 100);
  CHECK_THROWS_WITH_AS(examples::read_checkpoint(path, std::as_writable_bytes(std::span(&back, 1))), doctest::Contains("too short"), std::runtime_error);
}
