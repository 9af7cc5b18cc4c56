#include "daemon/publisher.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "protocol/atomics.hpp"
#include "protocol/futex.hpp"
#include "protocol/member_word.hpp"
#include "protocol/seqlock.hpp"

namespace gradshm::core {

namespace {
// The part of a MemberEntry under its sequence number.
constexpr std::size_t kEntryStart = offsetof(MemberEntry, pid), kEntryBytes = sizeof(MemberEntry) - kEntryStart;

void publish_entry(MemberEntry& shared, const MemberEntry& value) {
  publish(shared.sequence, reinterpret_cast<std::byte*>(&shared) + kEntryStart, reinterpret_cast<const std::byte*>(&value) + kEntryStart,
          kEntryBytes);
}
}  // namespace

void Publisher::member(const Member& member) {
  MemberEntry& shared = control_.members[member.rank];
  MemberEntry value = shared;  // own memory: this thread is its only writer
  value.pid = member.pid, value.uid = member.uid, value.partial = member.partial, value.joined_ns = member.joined_ns;
  if (generation_of(value.word) != member.generation) value.arrived = 0, value.last_commit_ns = 0, value.last_commit_round = 0;
  std::memset(value.label, 0, sizeof value.label);
  std::memcpy(value.label, member.label.data(), std::min(member.label.size(), sizeof value.label - 1));
  publish_entry(shared, value);
  // order: relaxed, `word` below releases it; it is read after the word that says "member".
  store_relaxed(shared.first_round, member.first_round);
  // order: seq_cst, pairs with WorkerWords::membership's load. An eviction must be visible before the close that left the worker out.
  store_seq_cst(shared.word, member_word(member.generation, member.state));
}

void Publisher::member_progress(const Member& member, std::size_t arrived, std::uint64_t commit_ns, std::uint64_t round) {
  MemberEntry& shared = control_.members[member.rank];
  if (generation_of(shared.word) != member.generation) return;  // a successor has the rank already
  MemberEntry value = shared;
  value.arrived = static_cast<std::uint32_t>(arrived);
  if (commit_ns != 0) value.last_commit_ns = commit_ns, value.last_commit_round = round;
  publish_entry(shared, value);
}

void Publisher::free_entry(unsigned rank, std::uint64_t generation) {
  MemberEntry& shared = control_.members[rank];
  if (generation_of(shared.word) != generation) return;
  // order: relaxed, it publishes nothing: member() has said "gone" there before.
  store_relaxed(shared.word, member_word(generation, MemberState::free));
}

void Publisher::bucket_arrived(std::size_t bucket, unsigned members) {
  store_relaxed(control_.buckets[bucket].arrived, members);  // order: relaxed, shown to people only
}

void Publisher::bucket_reduced(std::size_t bucket, std::uint64_t round) {
  BucketProgress& progress = control_.buckets[bucket];
  store_relaxed(progress.reductions, progress.reductions + 1);  // order: relaxed, shown to people only
  // order: relaxed, for pollers that only want to know how far it is; the result may be used after the close alone.
  store_relaxed(progress.reduced_round, round);
}

void Publisher::bytes_reduced(std::uint64_t bytes) {
  store_relaxed(control_.words->bytes_reduced, control_.words->bytes_reduced + bytes);  // order: relaxed, statistics
}

void Publisher::record(RoundRecord record, const std::vector<double>& group_weights) {
  const std::size_t at = record.round % kRecords;
  RoundRecord& shared = control_.records[at];
  const std::uint64_t before = load_relaxed(shared.sequence);  // order: relaxed, only this thread writes it
  store_relaxed(shared.sequence, before | 1);                  // order: the fence pairs with the reader's acquire fence (seqlock.hpp)
  fence_release();
  copy_words_in(&control_.group_weights[at * group_weights.size()], group_weights.data(), group_weights.size() * sizeof(double));
  copy_words_in(reinterpret_cast<std::byte*>(&shared) + 8, reinterpret_cast<const std::byte*>(&record) + 8, sizeof record - 8);
  store_release(shared.sequence, (before | 1) + 1);  // order: release, pairs with the reader's acquire load (seqlock.hpp)
}

void Publisher::adopt_records(const Control& old, std::uint64_t groups) {
  for (std::size_t at = 0; at < kRecords; ++at) {
    RoundRecord found;
    if (!try_read_record(old.records[at], found) || found.round == 0 || found.round % kRecords != at) continue;
    // order: relaxed, its writer is dead. A record beyond: it was killed between the record and the close.
    if (found.round > load_relaxed(old.words->closed_round)) continue;
    std::vector<double> weights(groups);
    copy_words_out(weights.data(), &old.group_weights[at * groups], groups * sizeof(double));
    record(found, weights);
  }
}

void Publisher::close(std::uint64_t round) {
  // order: seq_cst, pairs with WorkerWords::wait (Dekker over closed_round and waiting) and releases result bytes, headers and record.
  store_seq_cst(control_.words->closed_round, round);
}

void Publisher::member_count(unsigned members) {
  store_relaxed(control_.words->members, members);  // order: relaxed, shown to people only
}

void Publisher::open(std::uint64_t opened_ns) {
  store_relaxed(control_.words->opened_ns, opened_ns);  // order: relaxed, shown to people only
  store_relaxed(control_.words->first_commit_ns, 0);    // order: relaxed, shown to people only
}

void Publisher::first_commit(std::uint64_t at_ns) { store_relaxed(control_.words->first_commit_ns, at_ns); }  // order: relaxed, as above

void Publisher::event(EventKind kind, const Member* member, std::uint64_t round, std::string_view text) {
  Event event;
  event.time_ns = static_cast<std::uint64_t>(now_ns());
  event.round = round;
  event.kind = static_cast<std::uint32_t>(kind);
  if (member != nullptr) event.rank = static_cast<std::int32_t>(member->rank), event.pid = member->pid;
  std::memcpy(event.text, text.data(), std::min(text.size(), sizeof event.text - 1));
  publish_record(control_.events[events_ % kEvents], event);
  store_release(control_.words->events, ++events_);  // order: release, pairs with the snapshot's acquire load
}

void Publisher::state(ServerState state) {
  // order: release, pairs with WorkerWords::daemon_lives' acquire load; wake() behind it lets sleepers look.
  store_release(control_.words->state, static_cast<std::uint32_t>(state));
}

void Publisher::progress(std::uint64_t now) { store_relaxed(control_.words->progress_ns, now); }  // order: relaxed, shown to people only

void Publisher::idle(bool may_sleep) {
  // order: seq_cst, pairs with WorkerWords::ring: the worker stores `committed` and loads `idle`, the server stores `idle` and re-scans the
  // committed words; one of the two sees the other. Release here loses wake-ups.
  store_seq_cst(control_.words->idle, may_sleep ? 1u : 0u);
}

// Not where another server began: a worker that has loaded the old one's number may sleep on ours (docs/model.md, SAME_SEQUENCE).
void Publisher::begin_wake_seq(std::uint32_t at) { store_relaxed(control_.words->wake_seq, at); }  // order: relaxed, nobody else has it yet

void Publisher::turn_futex() {
  // order: seq_cst, pairs with WorkerWords::sleep_until's load of wake_seq after its add to `waiting`.
  add_seq_cst(control_.words->wake_seq, 1);
}

void Publisher::wake() {
  turn_futex();
  futex_wake_all(control_.words->wake_seq);
}

void Publisher::wake(std::span<const MemberPtr> members) {
  turn_futex();
  const auto sleeps = [&](const MemberPtr& member) { return member->sleeps(shape_); };
  if (std::any_of(members.begin(), members.end(), sleeps)) futex_wake_all(control_.words->wake_seq);
}

}  // namespace gradshm::core
