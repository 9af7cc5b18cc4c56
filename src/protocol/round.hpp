// THE state machine of a round, as the server keeps it in private memory. No clock, no system call, no shared word: a test calls it.
//
//   member m:   attached --ready--> ready --opening--> member --leave/death/evict--> (out)
//                                     ^                  |  ^
//                                   resume             pause |  next opening
//                                     +---- paused <-----+--+
//
//   bucket b:   filling --all members' words say r--> ready --sum(set)--> reduced(set)
//                  ^                                                          |
//                  +--------- set changed: a member went before it had -------+
//                             committed all its buckets (redo from the others' intact slots)
//
//   round r:    waiting for members --first member--> open --every bucket reduced(set)--> closed; r+1 opens with the ready ones
//
// One set for all buckets: a member that goes before it has committed everything is out of every bucket; one that has committed
// everything stays in, although it is gone.
#pragma once

#include <cstdint>
#include <vector>

#include "protocol/rank_set.hpp"

namespace gradshm::core {

class RoundMachine {
 public:
  RoundMachine(std::size_t buckets, std::uint64_t closed_round) : buckets_(buckets), open_(closed_round + 1) {}

  [[nodiscard]] std::uint64_t open_round() const noexcept { return open_; }
  [[nodiscard]] const RankSet& members() const noexcept { return members_; }
  [[nodiscard]] std::size_t buckets() const noexcept { return buckets_.size(); }
  [[nodiscard]] const RankSet& arrived(std::size_t bucket) const noexcept { return buckets_[bucket].arrived; }
  [[nodiscard]] std::size_t arrivals(unsigned rank) const noexcept { return arrivals_[rank]; }
  [[nodiscard]] bool committed_all(unsigned rank) const noexcept { return members_.contains(rank) && arrivals_[rank] == buckets_.size(); }

  // Only between rounds, or while the open round has no members.
  void admit(unsigned rank);
  // False if it was in already.
  bool arrive(unsigned rank, std::size_t bucket);
  // Out of the open round, unless it has committed everything: then it stays, and true is returned.
  bool remove(unsigned rank);

  [[nodiscard]] bool is_ready(std::size_t bucket) const noexcept {
    const BucketState& state = buckets_[bucket];
    return !members_.empty() && state.arrived.includes(members_) && state.reduced != members_;
  }
  void mark_reduced(std::size_t bucket) { buckets_[bucket].reduced = members_; }
  [[nodiscard]] bool can_close() const noexcept;
  // The next round opens without members.
  void close();

 private:
  struct BucketState {
    RankSet arrived;
    RankSet reduced;  // the members whose words it was reduced with; empty = not yet
  };
  std::vector<BucketState> buckets_;
  RankSet members_;
  std::array<std::size_t, kMaxWorkers> arrivals_{};
  std::uint64_t open_;
};

}  // namespace gradshm::core
