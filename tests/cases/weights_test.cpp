// What is divided by what, who is counted, and in which precision.
#include <doctest/doctest.h>

#include <algorithm>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

struct Contribution {
  float gradient;
  double weight;
};

// Every worker hands in its contribution and sees `result` and the sum of the weights.
int contribute(const std::string& instance, int rank, const std::vector<Contribution>& all, float result) {
  Verdict verdict;
  Worker worker = attach(instance, one_vector(300), rank);
  double weights = 0;
  for (const Contribution& one : all) weights += one.weight;
  const Contribution& mine = all[static_cast<std::size_t>(rank)];
  fill(worker, mine.gradient);
  verdict.expect(step(worker, {.weight = mine.weight}));
  verdict.expect(holds(worker, result));
  verdict.expect(worker.result_info("w").weight_sum == weights);
  verdict.expect(worker.result_info("w").count == all.size());
  verdict.expect(worker.round_group_weight(1, 0) == weights);
  return verdict.code();
}

std::string contribute_all(const std::string& op, const std::vector<Contribution>& all, float result) {
  const std::string expected = std::to_string(all.size());
  DaemonProcess daemon({"--expect", expected, "--op", op});
  auto workers = start_workers(static_cast<int>(all.size()), [&](int rank) { return contribute(daemon.name(), rank, all, result); });
  return exit_codes(workers);
}

// Rank r takes part in `rounds` rounds and leaves; `members` are the contributors of each round.
int contribute_and_leave(const std::string& instance, int rank, int rounds, const std::vector<std::uint32_t>& members) {
  Verdict verdict;
  Worker worker = attach(instance, one_vector(300), rank);
  for (int round = 1; round <= rounds; ++round) {
    fill(worker, 1);
    verdict.expect(step(worker));
    verdict.expect(holds(worker, 1));
    verdict.expect(worker.round(static_cast<std::uint64_t>(round)).contributor_count == members[static_cast<std::size_t>(round - 1)]);
  }
  worker.leave();
  return verdict.code();
}

// All three are written, but only the marked one says so.
int mark_one(const std::string& instance, int rank) {
  Verdict verdict;
  Layout layout;
  layout.add("of worker 1", DType::f32, {9}).add("of nobody", DType::f32, {9}).add("of worker 0", DType::f32, {9});
  Worker worker = attach(instance, layout, rank);
  fill(worker, rank == 0 ? 5.0f : 3.0f);
  verdict.expect(worker.commit_parameter(worker.find(rank == 0 ? "of worker 0" : "of worker 1")).status() == Outcome::ok);
  verdict.expect(step(worker, {.presence = Presence::marked}));
  const auto nobody = worker.result_info("of nobody"), zero = worker.result_info("of worker 0"), one = worker.result_info("of worker 1");
  verdict.expect(nobody.present == 0 && nobody.count == 0);
  verdict.expect(std::ranges::all_of(worker.result<float>("of nobody"), [](float element) { return element == 0; }));
  verdict.expect(zero.present == 1 && zero.count == 1 && zero.weight_sum == 1);
  verdict.expect(std::ranges::all_of(worker.result<float>("of worker 0"), [](float element) { return element == 5; }));
  verdict.expect(one.present == 1 && one.count == 1);
  verdict.expect(std::ranges::all_of(worker.result<float>("of worker 1"), [](float element) { return element == 3; }));
  return verdict.code();
}

float widen(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  float value = 0;
  static_assert(sizeof value == sizeof bits);
  std::copy_n(reinterpret_cast<const char*>(&bits), sizeof bits, reinterpret_cast<char*>(&value));
  return value;
}

constexpr std::uint16_t kOne = 0x3f80, k64 = 0x4280, k256 = 0x4380, k320 = 0x43a0;  // bf16

void fill_bits(std::vector<Worker>& workers, std::uint16_t first, std::uint16_t others) {
  for (Worker& worker : workers) std::ranges::fill(worker.slot<std::uint16_t>("w"), worker.rank() == 0 ? first : others);
}

}  // namespace

TEST_CASE("S5: contributions with weights 128, 128 and 44 give the sum and the weight 300 together") {
  CHECK(contribute_all("sum", {{128, 128}, {256, 128}, {44, 44}}, 428) == "0 0 0");
}

TEST_CASE("S5: their mean is the sum divided by 300") {
  CHECK(contribute_all("mean", {{128, 128}, {256, 128}, {44, 44}}, 428.0f / 300.0f) == "0 0 0");
}

TEST_CASE("S5: the weighted mean of means 1, 2 and 1 with these weights is the same") {
  CHECK(contribute_all("weighted-mean", {{1, 128}, {2, 128}, {1, 44}}, 428.0f / 300.0f) == "0 0 0");
}

TEST_CASE("pytorch#37359: a sum of 6 over 3 samples and one of 10 over 1 have the mean 4") {
  CHECK(contribute_all("mean", {{6, 3}, {10, 1}}, 4) == "0 0");
}

TEST_CASE("pytorch#42577: the mean of gradient 1 stays 1 when one of four workers leaves, and when two more do") {
  DaemonProcess daemon({"--expect", "4"});
  const std::vector<std::uint32_t> members{4, 3, 1};
  const std::vector<int> rounds{3, 2, 2, 1};
  auto workers = start_workers(4, [&](int rank) {
    return contribute_and_leave(daemon.name(), rank, rounds[static_cast<std::size_t>(rank)], members);
  });
  CHECK(exit_codes(workers) == "0 0 0 0");
}

TEST_CASE("pytorch#28294: a parameter that nobody wrote is absent, and one that one worker wrote is delivered with count 1") {
  DaemonProcess daemon({"--expect", "2"});
  auto workers = start_workers(2, [&](int rank) { return mark_one(daemon.name(), rank); });
  CHECK(exit_codes(workers) == "0 0");
}

TEST_CASE("nccl#1026: bf16 1.0 from 64 workers over 8 rounds accumulates to 512 in a reader's f32") {
  DaemonProcess daemon({"--expect", "64", "--op", "sum"});
  Layout layout;
  layout.add("w", DType::bf16, {33});
  std::vector<Worker> workers = attach_all(daemon.name(), layout, 64);
  Observer reader = Observer::observe(daemon.name());
  float total = 0;
  for (int round = 0; round < 8; ++round) {
    fill_bits(workers, kOne, kOne);
    REQUIRE(step_all(workers));
    CHECK(std::ranges::all_of(reader.result<std::uint16_t>(0), [](std::uint16_t bits) { return bits == k64; }));
    total += widen(reader.result<std::uint16_t>(0)[32]);
  }
  CHECK(total == 512);
}

TEST_CASE("nccl#1026: bf16 256 and 63 times 1.0 sum to 320, where a bf16 accumulator stalls at 256") {
  DaemonProcess daemon({"--expect", "64", "--op", "sum"});
  Layout layout;
  layout.add("w", DType::bf16, {33});
  std::vector<Worker> workers = attach_all(daemon.name(), layout, 64);
  fill_bits(workers, k256, kOne);
  REQUIRE(step_all(workers));
  CHECK(std::ranges::all_of(workers[0].result<std::uint16_t>(0), [](std::uint16_t bits) { return bits == k320; }));
}
