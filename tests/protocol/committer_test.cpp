#include "protocol/committer.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "protocol/atomics.hpp"
#include "protocol/member_word.hpp"

using namespace gradshm::core;

namespace {

// A worker's private side and the shared words it looks at, without a server.
struct Worker {
  Layout layout;
  SlotShape shape = slot_shape(layout);
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(shape.total / 8);
  ControlWords control;
  MemberEntry entry;
  UniqueFd doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  WorkerWords words;
  Committer committer;

  explicit Worker(std::vector<bool> named = {}) : layout(make_layout()), words(parts()), committer(layout, shape, slot(), std::move(named), words) {
    entry.word = member_word(3, MemberState::member);
  }
  static Layout make_layout() {
    Manifest manifest;
    for (const char* name : {"a.0", "a.1", "b.0", "b.1"}) {
      Parameter parameter;
      parameter.name = name, parameter.shape = {4};
      manifest.add(parameter);
    }
    return Layout(std::move(manifest), {.bucket_bytes = 128, .group_prefixes = {"a.", "b."}});  // two buckets of two parameters
  }
  std::byte* slot() { return reinterpret_cast<std::byte*>(memory.data()); }
  WorkerWords::Parts parts() {
    WorkerWords::Parts parts;
    parts.control = &control, parts.entry = &entry, parts.generation = 3, parts.doorbell = doorbell.get();
    parts.slot = reinterpret_cast<SlotWords*>(slot() + shape.words);
    return parts;
  }
  const CommitBlock& block(std::size_t bucket) { return *reinterpret_cast<const CommitBlock*>(slot() + shape.blocks[bucket]); }
  std::uint64_t bits(std::size_t bucket) { return *reinterpret_cast<const std::uint64_t*>(&block(bucket) + 1); }
  bool rang() {
    std::uint64_t count = 0;
    return read(doorbell.get(), &count, sizeof count) == sizeof count;
  }
};

}  // namespace

TEST_CASE("a commit of everything stores the open round, weight and presence of every bucket") {
  Worker worker;
  worker.control.closed_round = 6;
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_buckets(0, 2, {.weight = 2.5}, round) == Status::ok);
  CHECK(round == 7);
  for (std::size_t bucket = 0; bucket < 2; ++bucket) {
    CHECK(worker.block(bucket).committed == 7);
    CHECK(std::bit_cast<double>(worker.block(bucket).weight_bits) == 2.5);
    CHECK(worker.block(bucket).presence == static_cast<std::uint64_t>(PresenceKind::all));
  }
  CHECK(worker.committer.committed_round() == 7);
  CHECK(worker.committer.missing_buckets(7) == 0);
  CHECK(worker.committer.missing_buckets(8) == 2);
}

TEST_CASE("the bell rings only while the server may sleep") {
  Worker worker;
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_buckets(0, 1, {}, round) == Status::ok);
  CHECK_FALSE(worker.rang());
  worker.control.idle = 1;
  CHECK(worker.committer.commit_buckets(1, 2, {}, round) == Status::ok);
  CHECK(worker.rang());
}

TEST_CASE("a second commit is ALREADY_COMMITTED, one of a closed or a future round is refused") {
  Worker worker;
  std::uint64_t round = 0;
  worker.control.closed_round = 4;
  CHECK(worker.committer.commit_buckets(0, 1, {}, round) == Status::ok);
  CHECK(worker.committer.commit_buckets(0, 1, {}, round) == Status::already_committed);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::ok);  // the other one was missing
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::already_committed);
  CHECK(worker.committer.commit_buckets(0, 2, {.round = 4}, round) == Status::round_closed);
  CHECK(worker.committer.commit_buckets(0, 2, {.round = 6}, round) == Status::invalid);
}

TEST_CASE("a foreign generation is an eviction, a state before or beside membership is not") {
  Worker worker;
  std::uint64_t round = 0;
  worker.entry.word = member_word(3, MemberState::paused);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::not_member);
  worker.entry.word = member_word(3, MemberState::ready);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::not_member);
  worker.entry.word = member_word(4, MemberState::member);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::evicted);
  worker.entry.word = member_word(3, MemberState::free);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::evicted);
  CHECK(worker.block(0).committed == 0);
}

TEST_CASE("a newcomer's open round is never before its first") {
  Worker worker;
  worker.control.closed_round = 5;
  worker.entry.first_round = 7;
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_buckets(0, 2, {.round = 6}, round) == Status::round_closed);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::ok);
  CHECK(round == 7);
}

TEST_CASE("the first commit of a group fixes its weight for the round, and only for it") {
  Worker worker;
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_parameter(0, {.weight = 3}, round) == Status::ok);
  CHECK(worker.committer.commit_parameter(1, {.weight = 4}, round) == Status::invalid);
  CHECK(worker.block(0).committed == 0);
  CHECK(worker.committer.commit_parameter(1, {}, round) == Status::ok);  // 0 = the group's
  CHECK(std::bit_cast<double>(worker.block(0).weight_bits) == 3);
  CHECK(worker.committer.commit_group(1, {.weight = 9}, round) == Status::ok);
  CHECK(std::bit_cast<double>(worker.block(1).weight_bits) == 9);
  worker.control.closed_round = 1;
  CHECK(worker.committer.commit_buckets(0, 2, {.weight = 4}, round) == Status::ok);
  CHECK(std::bit_cast<double>(worker.block(0).weight_bits) == 4);
}

TEST_CASE("weights that are negative, infinite or no number are refused") {
  Worker worker;
  std::uint64_t round = 0;
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK(worker.committer.commit_buckets(0, 2, {.weight = bad}, round) == Status::invalid);
  CHECK(worker.block(0).committed == 0);
}

TEST_CASE("a bucket commits by itself when its last parameter is marked") {
  Worker worker;
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_parameter(1, {}, round) == Status::ok);
  CHECK(worker.block(0).committed == 0);
  CHECK(worker.committer.commit_parameter(1, {}, round) == Status::already_committed);
  CHECK(worker.committer.commit_parameter(0, {}, round) == Status::ok);
  CHECK(worker.block(0).committed == 1);
  CHECK(worker.block(0).presence == static_cast<std::uint64_t>(PresenceKind::all));
}

TEST_CASE("committing what is marked tells which parameters are absent, and forgets the marks of older rounds") {
  Worker worker;
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_parameter(1, {}, round) == Status::ok);
  CHECK(worker.committer.commit_buckets(0, 2, {.presence = Presence::marked}, round) == Status::ok);
  CHECK(worker.block(0).presence == static_cast<std::uint64_t>(PresenceKind::bits));
  CHECK(worker.bits(0) == 2);
  CHECK(worker.block(1).presence == static_cast<std::uint64_t>(PresenceKind::none));  // an abstention
  worker.control.closed_round = 1;
  CHECK(worker.committer.commit_buckets(0, 2, {.presence = Presence::marked}, round) == Status::ok);
  CHECK(worker.block(0).presence == static_cast<std::uint64_t>(PresenceKind::none));
  worker.control.closed_round = 2;
  CHECK(worker.committer.commit_parameter(1, {}, round) == Status::ok);
  CHECK(worker.committer.commit_parameter(0, {}, round) == Status::ok);
  CHECK(worker.block(0).committed == 3);
}

TEST_CASE("a partial worker's bucket commits with its own parameters alone, and buckets without any are passed over") {
  Worker worker({true, false, false, false});
  std::uint64_t round = 0;
  CHECK(worker.committer.commit_parameter(1, {}, round) == Status::invalid);
  CHECK(worker.committer.commit_parameter(0, {}, round) == Status::ok);
  CHECK(worker.block(0).committed == 1);
  CHECK(worker.bits(0) == 1);
  CHECK(worker.committer.commit_buckets(0, 2, {}, round) == Status::already_committed);
  CHECK(worker.block(1).committed == 0);
}

TEST_CASE("threads that mark the parameters of one bucket commit it exactly once") {
  for (std::uint64_t round = 1; round <= 500; ++round) {
    static Worker* const worker = new Worker;
    worker->control.closed_round = round - 1;
    std::uint64_t first = 0, second = 0;
    std::thread other([&] { static_cast<void>(worker->committer.commit_parameter(0, {.weight = 2}, first)); });
    const Status status = worker->committer.commit_parameter(1, {.weight = 2}, second);
    other.join();
    REQUIRE(status == Status::ok);
    REQUIRE(worker->block(0).committed == round);
    REQUIRE(worker->block(0).presence == static_cast<std::uint64_t>(PresenceKind::all));
  }
}
