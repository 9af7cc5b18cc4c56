// The worker's side of the shared words: membership, commit words, doorbell, wait. Wait-free but for wait itself.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "memory/control.hpp"
#include "memory/slot.hpp"

namespace gradshm::core {

class WorkerWords {
 public:
  struct Parts {
    const ControlWords* control = nullptr;
    const MemberEntry* entry = nullptr;  // of our rank
    SlotWords* slot = nullptr;           // nullptr: an observer, who sleeps in short slices because nobody wakes him
    std::uint64_t generation = 0;
    int doorbell = -1;
    int daemon_pidfd = -1;
    std::int64_t spin_ns = 0;
  };
  WorkerWords() = default;
  explicit WorkerWords(const Parts& parts) : parts_(parts) {}

  // ok: a member of the open round; not_member: not admitted yet, or paused; evicted.
  Status membership() const noexcept;
  [[nodiscard]] std::uint64_t closed_round() const noexcept;
  [[nodiscard]] std::uint64_t open_round() const noexcept;  // for this worker: never before its first
  [[nodiscard]] std::uint64_t first_round() const noexcept;

  // Publishes what was written to the bucket's slot bytes before: weight and presence (bits are there already), then the round.
  static void publish_bucket(CommitBlock& block, std::uint64_t round, double weight, PresenceKind presence) noexcept;
  // Behind the last publish of a commit: wakes the server if it may sleep.
  void ring() const noexcept;

  // ok: closed; not_closed; evicted; daemon_lost.
  Status look(std::uint64_t round) const noexcept;
  // The same, timeout instead of not_closed. Never hangs: sleeps in slices of 50 ms and asks in each whether the server lives.
  Status wait(std::uint64_t round, const Deadline& deadline) const noexcept;
  // Until this worker is a member. ok, timeout, evicted, daemon_lost.
  Status wait_admitted(const Deadline& deadline) const noexcept;
  [[nodiscard]] bool daemon_lives() const noexcept;

 private:
  template <class Condition>
  Status sleep_until(Condition&& condition, const Deadline& deadline) const noexcept;
  Status admission() const noexcept;

  Parts parts_;
};

}  // namespace gradshm::core
