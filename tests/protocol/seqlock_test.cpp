#include "protocol/seqlock.hpp"

#include <doctest/doctest.h>

#include <array>
#include <thread>

using namespace gradshm::core;

namespace {
struct Record {
  std::uint64_t sequence = 0;
  std::array<std::uint64_t, 15> words{};
};
}  // namespace

TEST_CASE("a published record is read whole, a half-written one not at all") {
  Record shared, value, read;
  value.words.fill(7);
  publish_record(shared, value);
  CHECK(shared.sequence == 2);
  REQUIRE(try_read_record(shared, read));
  CHECK(read.words == value.words);
  CHECK(read.sequence == 2);
  shared.sequence = 3;
  CHECK_FALSE(try_read_record(shared, read));
}

TEST_CASE("a record whose writer died in the middle can be published again") {
  Record shared, value, read;
  shared.sequence = 5;
  value.words.fill(1);
  publish_record(shared, value);
  CHECK(shared.sequence == 6);
  CHECK(try_read_record(shared, read));
}

TEST_CASE("a reader never sees a mixture of two records while a writer writes") {
  Record shared;
  std::uint64_t taken = 0, mixed = 0;
  std::thread writer([&] {
    for (std::uint64_t round = 1; round <= 20'000; ++round) {
      Record value;
      value.words.fill(round);
      publish_record(shared, value);
    }
  });
  for (Record read; read.words[0] < 20'000;) {
    if (!try_read_record(shared, read)) continue;
    ++taken;
    for (const std::uint64_t word : read.words) mixed += word != read.words[0] ? 1u : 0u;
  }
  writer.join();
  CHECK(taken > 0);
  CHECK(mixed == 0);
}
