// A worker that writes nonsense where the server looks: it goes, the others go on.
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "memory/slot.hpp"
#include "server/raw_client.hpp"

namespace gradshm::test {
namespace {

constexpr std::size_t kParameters = 3;

// The words of a worker's slot, reached as only a broken or hostile worker would.
class SlotWords {
 public:
  explicit SlotWords(const Worker& worker, std::uint64_t bucket_bytes = kOneEach)
      : layout_(core_floats(kParameters, 4, bucket_bytes)), shape_(core::slot_shape(layout_)) {
    const auto first = reinterpret_cast<std::byte*>(worker.slot<float>("p0").data());
    base_ = first - shape_.gradients - layout_.placements()[0].offset;
  }
  void store(std::size_t offset, std::uint64_t value) const { std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base_ + offset)).store(value); }
  [[nodiscard]] std::size_t block(std::size_t bucket) const { return shape_.blocks[bucket]; }
  void commit(std::size_t bucket, std::uint64_t round, double weight, std::uint64_t presence) const {
    store(block(bucket) + offsetof(core::CommitBlock, weight_bits), std::bit_cast<std::uint64_t>(weight));
    store(block(bucket) + offsetof(core::CommitBlock, presence), presence);
    store(block(bucket) + offsetof(core::CommitBlock, committed), round);
  }
  [[nodiscard]] std::size_t waiting() const { return shape_.words + offsetof(core::SlotWords, waiting); }

 private:
  core::Layout layout_;
  core::SlotShape shape_;
  std::byte* base_ = nullptr;
};

// Rank 1 attacks, ranks 0 and 2 must get their own sum in this round and the next.
void check_attack(const std::function<void(const SlotWords&)>& attack) {
  Team team(floats(kParameters), summing(3, kOneEach));
  check_exact_round({&team[0], &team[1], &team[2]});
  fill_all(team[1], 1000);
  attack(SlotWords(team[1]));
  check_exact_round({&team[0], &team[2]});
  CHECK(team[0].round(2).contributors[0] == 5);
  CHECK(team[1].wait(2, kLong) == Outcome::evicted);
  CHECK(commit(team[1]) == Outcome::evicted);
  CHECK(failure_of([&] { team[1].pause(); }).code == GRADSHM_EVICTED);
  check_exact_round({&team[0], &team[2]});
  Worker again = Worker::attach(team.server.name(), floats(kParameters), unadmitted(1));
  CHECK(again.rank() == 1);
}

}  // namespace

TEST_CASE("a committed word beyond the open round evicts its writer") {
  for (const std::uint64_t round : {std::uint64_t{3}, std::uint64_t{1000}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    CAPTURE(round);
    check_attack([&](const SlotWords& slot) { slot.commit(1, round, 1, 2); });
  }
}

TEST_CASE("a weight that is no positive finite number evicts its writer") {
  for (const double weight : {std::nan(""), 0.0, -1.0, std::numeric_limits<double>::infinity(), -0.0}) {
    CAPTURE(weight);
    check_attack([&](const SlotWords& slot) { slot.commit(0, 2, weight, 2); });
  }
}

TEST_CASE("an unknown presence evicts its writer") {
  for (const std::uint64_t presence : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{77}, ~std::uint64_t{0}}) {
    CAPTURE(presence);
    check_attack([&](const SlotWords& slot) { slot.commit(2, 2, 1, presence); });
  }
}

TEST_CASE("nonsense after good buckets takes those out of the sums again") {
  check_attack([](const SlotWords& slot) {
    slot.commit(0, 2, 1, 2), slot.commit(1, 2, 1, 2);
    nap();
    slot.commit(2, 2, 1, 99);
  });
}

TEST_CASE("a slot full of ones evicts its writer") {
  check_attack([](const SlotWords& slot) {
    for (std::size_t bucket = 0; bucket < kParameters; ++bucket)
      for (std::size_t word = 0; word < core::kLineBytes; word += 8) slot.store(slot.block(bucket) + word, ~std::uint64_t{0});
  });
}

TEST_CASE("a committed word that goes back only makes the round wait for its writer") {
  Team team(floats(kParameters), summing(2, kOneEach));
  check_exact_round({&team[0], &team[1]});
  const SlotWords slot(team[1]);
  slot.store(slot.block(0), 0);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(team[0].wait(2, 30ms) == Outcome::timeout);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0], 2) == Outcome::ok);
}

TEST_CASE("presence bits beyond the bucket's parameters are not looked at") {
  Team team(floats(kParameters), summing(2));
  const SlotWords slot(team[1], core::kDefaultBucketBytes);
  fill_all(team[0], 1), fill_all(team[1], 2);
  slot.store(slot.block(0) + sizeof(core::CommitBlock), ~std::uint64_t{0} << 1);  // all but p0, and 61 that are none
  slot.commit(0, 1, 1, 3);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 1));
  CHECK(all_are(team[0], 1, 3));
  CHECK(all_are(team[0], 2, 3));
  CHECK(team[0].result_info("p2").count == 2);
}

TEST_CASE("a nonsense count of waiting threads harms nobody") {
  Team team(floats(kParameters), summing(2));
  const SlotWords slot(team[1], core::kDefaultBucketBytes);
  for (const std::uint64_t waiting : {~std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{1} << 31}) {
    slot.store(slot.waiting(), waiting);
    check_exact_round({&team[0], &team[1]});
  }
}

TEST_CASE("a gradient that changes after its commit spoils the writer's contribution and nobody else's") {
  Team team(floats(kParameters, 10'000), summing(2));
  std::atomic<bool> over{false};
  fill_all(team[1], 1);
  std::thread scribbler([&] {
    auto* words = reinterpret_cast<std::uint32_t*>(team[1].slot<float>("p1").data());
    for (std::uint32_t value = 0; !over; ++value) std::atomic_ref(words[value % 10'000]).store(value);
  });
  for (int round = 1; round <= 20; ++round) {
    fill_all(team[0], 2);
    for (Worker& worker : team.workers) CHECK(commit(worker) == Outcome::ok);
    for (Worker& worker : team.workers) CHECK(wait_for(worker) == Outcome::ok);
    CHECK(all_are(team[0], 0, 3));
    CHECK(all_are(team[0], 2, 3));
  }
  over = true;
  scribbler.join();
}

}  // namespace gradshm::test
