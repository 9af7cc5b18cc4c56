#include "protocol/worker_words.hpp"

#include <poll.h>

#include <algorithm>
#include <bit>

#include "protocol/atomics.hpp"
#include "protocol/futex.hpp"
#include "protocol/member_word.hpp"

namespace gradshm::core {
namespace {
constexpr std::int64_t kSliceNs = 50'000'000;          // a dead server is noticed within this
constexpr std::int64_t kObserverSliceNs = 2'000'000;   // nobody wakes an observer for its own sake
}  // namespace

Status WorkerWords::membership() const noexcept {
  // order: seq_cst, pairs with Publisher::member: an eviction that came before a close is seen by whoever has seen the close.
  const std::uint64_t word = load_seq_cst(parts_.entry->word);
  if (generation_of(word) != parts_.generation) return Status::evicted;
  switch (state_of(word)) {
    case MemberState::member: return Status::ok;
    case MemberState::attached:
    case MemberState::ready:
    case MemberState::paused: return Status::not_member;
    default: return Status::evicted;
  }
}

std::uint64_t WorkerWords::closed_round() const noexcept {
  return load_seq_cst(parts_.control->closed_round);  // order: seq_cst, pairs with Publisher::close: the result is visible
}

std::uint64_t WorkerWords::first_round() const noexcept {
  return load_relaxed(parts_.entry->first_round);  // order: relaxed, whoever has loaded a word that says "member" sees it
}

std::uint64_t WorkerWords::open_round() const noexcept { return std::max(closed_round() + 1, first_round()); }

void WorkerWords::publish_bucket(CommitBlock& block, std::uint64_t round, double weight, PresenceKind presence) noexcept {
  // order: relaxed (both), `committed` below releases them.
  store_relaxed(block.weight_bits, std::bit_cast<std::uint64_t>(weight));
  store_relaxed(block.presence, static_cast<std::uint64_t>(presence));
  // order: seq_cst. Releases slot bytes, weight and presence to Rounds::take_commits' load; and stands before ring()'s load of
  // `idle` in the one total order (Dekker with Publisher::idle and the server's re-scan). Release alone loses wake-ups, also on x86.
  store_seq_cst(block.committed, round);
}

void WorkerWords::ring() const noexcept {
  // order: seq_cst, see publish_bucket.
  if (load_seq_cst(parts_.control->idle) == 0) return;
  ring_doorbell(parts_.doorbell);
}

bool WorkerWords::daemon_lives() const noexcept {
  // order: acquire, pairs with Publisher::state.
  if (load_acquire(parts_.control->state) == static_cast<std::uint32_t>(ServerState::stopped)) return false;
  pollfd probe{parts_.daemon_pidfd, POLLIN, 0};
  return poll(&probe, 1, 0) == 0 || (probe.revents & POLLIN) == 0;
}

Status WorkerWords::look(std::uint64_t round) const noexcept {
  const bool closed = closed_round() >= round;
  // The member word after closed_round: evictions are stored before the first close without the worker.
  if (parts_.slot != nullptr && membership() == Status::evicted) return Status::evicted;
  return closed ? Status::ok : Status::not_closed;
}

Status WorkerWords::admission() const noexcept {
  const Status membership_now = membership();
  return membership_now == Status::not_member ? Status::not_closed : membership_now;
}

// condition: not_closed = go on waiting, anything else is the answer.
template <class Condition>
Status WorkerWords::sleep_until(Condition&& condition, const Deadline& deadline) const noexcept {
  const std::int64_t slice_ns = parts_.slot != nullptr ? kSliceNs : kObserverSliceNs;
  while (true) {
    // order: seq_cst, pairs with Publisher::turn_futex: a change after this load makes the futex call return at once.
    const std::uint32_t seen = load_seq_cst(parts_.control->wake_seq);
    if (const Status status = condition(); status != Status::not_closed) return status;
    if (!daemon_lives()) {  // before the time-out: a loop of waits without any time must learn it, too
      // It may have closed the round and then died: its last word counts.
      const Status last = condition();
      return last == Status::not_closed ? Status::daemon_lost : last;
    }
    if (deadline.passed()) return Status::timeout;
    futex_wait(parts_.control->wake_seq, seen, std::clamp<std::int64_t>(deadline.remaining_ns(), 1, slice_ns));
  }
}

Status WorkerWords::wait(std::uint64_t round, const Deadline& deadline) const noexcept {
  const std::int64_t spin_until = parts_.spin_ns > 0 ? now_ns() + parts_.spin_ns : 0;
  std::int64_t asked_ns = spin_until - parts_.spin_ns;
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (const Status status = look(round); status != Status::not_closed) return status;
      if (spin_until == 0) break;
      cpu_relax();
    }
    if (spin_until == 0 || deadline.passed()) break;
    const std::int64_t now = now_ns();
    if (now >= spin_until) break;
    if (now - asked_ns < kSliceNs) continue;
    asked_ns = now;
    if (!daemon_lives()) break;  // sleep_until says so
  }
  // order: seq_cst, pairs with Member::sleeps: either the server sees that we wait, or we see what it has stored (Dekker).
  if (parts_.slot != nullptr) add_seq_cst(parts_.slot->waiting, 1);
  const Status status = sleep_until([&] { return look(round); }, deadline);
  if (parts_.slot != nullptr) add_relaxed(parts_.slot->waiting, -1);  // order: relaxed, a late decrement costs one needless wake
  return status;
}

Status WorkerWords::wait_admitted(const Deadline& deadline) const noexcept {
  add_seq_cst(parts_.slot->waiting, 1);  // order: as in wait
  const Status status = sleep_until([&] { return admission(); }, deadline);
  add_relaxed(parts_.slot->waiting, -1);  // order: as in wait
  return status;
}

}  // namespace gradshm::core
