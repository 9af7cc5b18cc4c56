#include "daemon/rounds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/clock.hpp"
#include "base/text.hpp"

namespace gradshm::core {

namespace {
constexpr std::uint64_t kBatchBytes = 32u << 20;  // of results: about 10 ms of memory traffic, then events are looked at again
}

Rounds::Rounds(Arena& arena, const ServerOptions& options, Publisher& publisher,
               std::function<void(const MemberPtr&, const std::string&)> evict)
    : arena_(arena),
      options_(options),
      publisher_(publisher),
      evict_(std::move(evict)),
      machine_(arena.layout.buckets().size(), 0),
      reduction_(arena, options.op, options.reducer_threads) {}

bool Rounds::turn() {
  bool worked = scan();
  worked |= reduce_ready();
  if (machine_.can_close()) close(), worked = true;
  return worked;
}

bool Rounds::scan() {
  bool found = false;
  const RankSet members = machine_.members();  // a copy: an eviction changes the set
  members.for_each([&](unsigned rank) {
    const MemberPtr member = taking_part_[rank];
    if (!member || machine_.committed_all(rank)) return;
    const Found taken = take_commits(*member);
    if (!taken.nonsense.empty()) evict_(member, taken.nonsense);
    found |= taken.any || !taken.nonsense.empty();
  });
  return found;
}

Rounds::Found Rounds::take_commits(Member& member) {
  Found found;
  for (std::size_t bucket = 0; bucket < machine_.buckets(); ++bucket) {
    if (machine_.arrived(bucket).contains(member.rank)) continue;
    if (member.partial && member.skips[bucket]) {
      member.contributions[bucket] = {};
      machine_.arrive(member.rank, bucket);  // it never commits there: no arrival that anybody should see
      continue;
    }
    // order: seq_cst, pairs with WorkerWords::publish_bucket's store: weight, presence and all slot bytes of the round are visible; and
    // behind the store of `idle` (Publisher::idle) it is one half of the Dekker pair. An acquire may pass that store, and a wake-up is lost.
    const std::uint64_t committed = load_seq_cst(member.block(arena_.shape, bucket).committed);
    if (committed < open_round()) continue;
    if (committed > open_round() || !take_contribution(member, bucket)) {
      found.nonsense = "bucket " + std::to_string(bucket) + " of its slot holds nonsense (committed round " + format_count(committed) + ")";
      return found;
    }
    note_arrival(member, bucket);
    found.any = true;
  }
  return found;
}

// Before a member goes: what it has committed counts, also if the news of its going came with the same turn of the loop.
void Rounds::take_last_commits(const MemberPtr& member) {
  if (taking_part_[member->rank] == member && !machine_.committed_all(member->rank)) static_cast<void>(take_commits(*member));
}

// Every word is read once into private memory, then checked. False: nonsense.
bool Rounds::take_contribution(Member& member, std::size_t bucket) {
  const CommitBlock& block = member.block(arena_.shape, bucket);
  Contribution contribution;
  // order: relaxed (all three), the load of `committed` came first.
  contribution.weight = std::bit_cast<double>(load_relaxed(block.weight_bits));
  const std::uint64_t presence = load_relaxed(block.presence);
  if (!(contribution.weight > 0) || !std::isfinite(contribution.weight)) return false;
  if (presence < static_cast<std::uint64_t>(PresenceKind::none) || presence > static_cast<std::uint64_t>(PresenceKind::bits)) return false;
  contribution.presence = static_cast<PresenceKind>(presence);
  const Bucket& place = arena_.layout.buckets()[bucket];
  if (contribution.presence == PresenceKind::bits || member.partial) {
    const auto* bits = reinterpret_cast<const std::uint64_t*>(&block + 1);
    std::vector<std::uint64_t> mine(presence_words(place.parameters));
    for (std::size_t position = 0; position < place.parameters; ++position) {
      const bool named = !member.partial || member.named[arena_.layout.order()[place.first + position]];
      const bool said = contribution.presence != PresenceKind::bits ? contribution.presence == PresenceKind::all
                                                                    : (load_relaxed(bits[position / 64]) >> (position % 64) & 1) != 0;  // order: as above
      if (named && said) mine[position / 64] |= std::uint64_t{1} << (position % 64);
    }
    contribution.presence = PresenceKind::bits;
    contribution.bits = std::move(mine);
    if (std::all_of(contribution.bits.begin(), contribution.bits.end(), [](std::uint64_t word) { return word == 0; }))
      contribution.presence = PresenceKind::none;
  }
  member.contributions[bucket] = std::move(contribution);
  return true;
}

void Rounds::note_arrival(const Member& member, std::size_t bucket) {
  const auto now = static_cast<std::uint64_t>(now_ns());
  machine_.arrive(member.rank, bucket);
  if (first_commit_ns_ == 0) first_commit_ns_ = now, publisher_.first_commit(now);
  last_commit_ns_ = now, last_rank_ = static_cast<int>(member.rank);
  publisher_.member_progress(member, machine_.arrivals(member.rank), now, open_round());
  publisher_.bucket_arrived(bucket, machine_.arrived(bucket).size());
}

bool Rounds::reduce_ready() {
  std::vector<std::size_t> batch;
  std::uint64_t bytes = 0;
  for (std::size_t bucket = 0; bucket < machine_.buckets() && bytes < kBatchBytes; ++bucket)
    if (machine_.is_ready(bucket)) batch.push_back(bucket), bytes += arena_.layout.buckets()[bucket].bytes;
  if (batch.empty()) return false;
  const std::int64_t start = now_ns();
  const auto members = members_in_order();
  publisher_.bytes_reduced(reduction_.reduce(batch, members, open_round()));
  for (const std::size_t bucket : batch) machine_.mark_reduced(bucket), publisher_.bucket_reduced(bucket, open_round());
  reduce_ns_ += static_cast<std::uint64_t>(now_ns() - start);
  return true;
}

std::vector<MemberPtr> Rounds::members_in_order() const {
  std::vector<MemberPtr> members;
  machine_.members().for_each([&](unsigned rank) { members.push_back(taking_part_[rank]); });
  return members;
}

RoundRecord Rounds::make_record() const {
  RoundRecord record;
  RankSet contributors, nonfinite;
  for (std::size_t bucket = 0; bucket < machine_.buckets(); ++bucket) {
    const BucketStats& stats = reduction_.stats(bucket);
    contributors.insert_all(stats.contributors);
    record.sum_of_squares += stats.sum_of_squares;
    record.nonfinite_result += stats.nonfinite_result;
    for (const auto& [rank, count] : stats.nonfinite_by_rank) nonfinite.insert(rank), record.nonfinite_by_rank[rank] += count;
  }
  record.round = open_round();
  record.status = contributors.empty() ? GRADSHM_EMPTY : GRADSHM_OK;
  record.member_count = machine_.members().size(), record.contributor_count = contributors.size();
  std::copy_n(machine_.members().words().begin(), kRankWords, record.members);
  std::copy_n(contributors.words().begin(), kRankWords, record.contributors);
  std::copy_n(nonfinite.words().begin(), kRankWords, record.nonfinite_ranks);
  record.first_commit_ns = first_commit_ns_, record.last_commit_ns = last_commit_ns_, record.reduce_ns = reduce_ns_;
  record.closed_ns = static_cast<std::uint64_t>(now_ns()), record.last_rank = last_rank_;
  return record;
}

// Of each group: the weights of those who contributed to any of its buckets.
std::vector<double> Rounds::group_weights() const {
  std::vector<double> sums(arena_.layout.groups().size());
  const auto members = members_in_order();
  for (const MemberPtr& member : members) {
    std::vector<bool> counted(sums.size());
    for (std::size_t bucket = 0; bucket < machine_.buckets(); ++bucket) {
      const std::uint32_t group = arena_.layout.buckets()[bucket].group;
      const Contribution& contribution = member->contributions[bucket];
      if (counted[group] || contribution.presence == PresenceKind::none) continue;
      counted[group] = true, sums[group] += contribution.weight;
    }
  }
  return sums;
}

void Rounds::close() {
  const std::uint64_t round = open_round();
  // Everything that takes memory comes before anything changes.
  const RoundRecord record = make_record();
  const std::vector<double> weights = group_weights();
  const std::vector<MemberPtr> members = members_in_order();
  std::vector<MemberPtr> sleepers = ready_;  // newcomers sleep too, until they are admitted
  sleepers.insert(sleepers.end(), members.begin(), members.end());
  ready_.reserve(ready_.size() + members.size());
  publisher_.record(record, weights);
  machine_.close();
  taking_part_.fill(nullptr);
  publisher_.close(round);
  for (const MemberPtr& member : members) {
    if (member->state == MemberState::member) ready_.push_back(member);
    if (member->state == MemberState::gone) publisher_.free_entry(member->rank, member->generation);
  }
  open();
  publisher_.wake(sleepers);
}

// Admits all that are ready. Only between rounds, or while the open round has no members.
void Rounds::open() {
  const bool enough = started_ || ready_.size() >= options_.expect;
  if (!opening_ || held_ || !enough || (ready_.empty() && paused_in_round_.empty()) || !machine_.members().empty()) return;
  started_ = true;
  first_commit_ns_ = last_commit_ns_ = reduce_ns_ = 0, last_rank_ = -1;
  for (const MemberPtr& member : ready_) {
    machine_.admit(member->rank);
    taking_part_[member->rank] = member;
    const bool newcomer = member->state != MemberState::member;
    if (newcomer) member->state = MemberState::member, member->first_round = open_round(), publisher_.member(*member);
    if (newcomer) publisher_.event(EventKind::admitted, member.get(), open_round(), "takes part from this round on");
    publisher_.member_progress(*member, 0, 0, 0);
  }
  ready_.clear();
  for (const MemberPtr& member : paused_in_round_) machine_.admit(member->rank), taking_part_[member->rank] = member;
  paused_in_round_.clear();
  for (std::size_t bucket = 0; bucket < machine_.buckets(); ++bucket) publisher_.bucket_arrived(bucket, 0);
  publisher_.open(static_cast<std::uint64_t>(now_ns()));
  publisher_.member_count(machine_.members().size());
}

void Rounds::hold(std::uint64_t closed_round) {
  held_ = true, started_ = closed_round > 0;
  machine_ = RoundMachine(arena_.layout.buckets().size(), closed_round);
  publisher_.close(closed_round);
}

void Rounds::rejoined(const MemberPtr& member) {
  const bool in_round = member->state == MemberState::paused && committed_everything(*member, open_round());
  started_ = started_ || member->state == MemberState::member || in_round;
  publisher_.member(*member);
  if (in_round) paused_in_round_.push_back(member);
  if (member->state == MemberState::member || member->state == MemberState::ready) ready_.push_back(member);
  open();  // who was paused may come when the rounds run again
}

bool Rounds::committed_everything(const Member& member, std::uint64_t round) const {
  for (std::size_t bucket = 0; bucket < machine_.buckets(); ++bucket) {
    if (member.partial && member.skips[bucket]) continue;
    // order: relaxed, the hand-over came behind the worker's stores; what is believed is loaded again by take_commits.
    if (load_relaxed(member.block(arena_.shape, bucket).committed) != round) return false;
  }
  return true;
}

void Rounds::open_again() {
  held_ = false;
  open();
  publisher_.wake();
}

std::vector<MemberPtr> Rounds::late() const {
  std::vector<MemberPtr> found;
  machine_.members().for_each([&](unsigned rank) {
    if (!machine_.committed_all(rank)) found.push_back(taking_part_[rank]);
  });
  return found;
}

void Rounds::ready(const MemberPtr& member) {
  member->state = MemberState::ready;
  publisher_.member(*member);
  ready_.push_back(member);
  open();
  publisher_.wake();
}

void Rounds::paused(const MemberPtr& member) {
  take_last_commits(member);
  member->state = MemberState::paused;
  publisher_.member(*member);
  std::erase(ready_, member);
  if (!machine_.remove(member->rank) && taking_part_[member->rank] == member) taking_part_[member->rank] = nullptr;
  publisher_.member_count(machine_.members().size());
  open();
  publisher_.wake();
}

void Rounds::remove(const MemberPtr& member) {
  take_last_commits(member);
  std::erase(ready_, member), std::erase(paused_in_round_, member);
  member->state = MemberState::gone;
  publisher_.member(*member);
  const bool takes_part = taking_part_[member->rank] == member;
  const bool counts = takes_part && machine_.remove(member->rank);
  if (takes_part && !counts) taking_part_[member->rank] = nullptr;
  if (!counts) publisher_.free_entry(member->rank, member->generation);
  publisher_.member_count(machine_.members().size());
  open();
  publisher_.wake();
}

}  // namespace gradshm::core
