#include "protocol/committer.hpp"

#include <bit>
#include <cmath>

#include "protocol/atomics.hpp"

namespace gradshm::core {
namespace {
constexpr int kCountBits = 24;  // kMaxParameters fits
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;
static_assert(kMaxParameters <= kCountMask);
}  // namespace

Committer::Committer(const Layout& layout, const SlotShape& shape, std::byte* slot, std::vector<bool> named, const WorkerWords& words)
    : layout_(layout),
      shape_(shape),
      slot_(slot),
      named_(std::move(named)),
      own_parameters_(layout.buckets().size()),
      words_(words),
      weights_(std::make_unique<GroupWeight[]>(layout.groups().size())),
      marked_(std::make_unique<std::atomic<std::uint64_t>[]>(layout.parameters().size())),
      mark_counts_(std::make_unique<std::atomic<std::uint64_t>[]>(layout.buckets().size())) {
  for (std::size_t i = 0; i < layout.parameters().size(); ++i)
    if (names(i)) ++own_parameters_[layout.placements()[i].bucket];
}

CommitBlock& Committer::block(std::size_t bucket) const noexcept { return *reinterpret_cast<CommitBlock*>(slot_ + shape_.blocks[bucket]); }

bool Committer::is_committed(std::size_t bucket, std::uint64_t round) const noexcept {
  return load_relaxed(block(bucket).committed) >= round;  // order: relaxed, our own word; threads share a bucket at their own risk
}

std::uint64_t Committer::committed_round() const noexcept {
  return committed_.load(std::memory_order_relaxed);  // order: relaxed, a number that grows; nothing is read through it
}

std::size_t Committer::missing_buckets(std::uint64_t round) const noexcept {
  std::size_t missing = 0;
  for (std::size_t bucket = 0; bucket < own_parameters_.size(); ++bucket)
    if (names_any_of(bucket) && !is_committed(bucket, round)) ++missing;
  return missing;
}

Status Committer::resolve_round(std::uint64_t& round) const noexcept {
  if (const Status status = words_.membership(); status != Status::ok) return status;
  const std::uint64_t open = words_.open_round();
  if (round == 0) round = open;
  if (round < open) return Status::round_closed;
  return round > open ? Status::invalid : Status::ok;
}

// The first commit of a round decides for the group; the others must say the same, or nothing (0).
Status Committer::fix_weight(std::size_t group, std::uint64_t round, double asked, double& ret_weight) noexcept {
  if (!(asked >= 0) || !std::isfinite(asked)) return Status::invalid;
  // order: relaxed (all). A thread that commits to round+1 has seen this worker's buckets published for `round`, through the server.
  weights_[group].bits[(round + 1) % 2].store(0, std::memory_order_relaxed);
  std::uint64_t fixed = 0;
  const auto wanted = std::bit_cast<std::uint64_t>(asked == 0 ? 1.0 : asked);
  if (weights_[group].bits[round % 2].compare_exchange_strong(fixed, wanted, std::memory_order_relaxed)) fixed = wanted;
  ret_weight = std::bit_cast<double>(fixed);
  return asked == 0 || fixed == wanted ? Status::ok : Status::invalid;
}

void Committer::withdraw() noexcept {
  const std::uint64_t closed = words_.closed_round();
  if (missing_buckets(closed + 1) == 0) return;  // complete: it counts, and a successor of a killed server must find it
  // order: relaxed (all). The server does not look at a paused worker's words; resuming goes over the socket, which orders it.
  for (std::size_t bucket = 0; bucket < own_parameters_.size(); ++bucket) {
    if (load_relaxed(block(bucket).committed) > closed) store_relaxed(block(bucket).committed, closed);
    mark_counts_[bucket].store(0, std::memory_order_relaxed);  // order: as above
  }
  for (std::size_t parameter = 0; parameter < layout_.parameters().size(); ++parameter) marked_[parameter].store(0, std::memory_order_relaxed);
  for (std::size_t group = 0; group < layout_.groups().size(); ++group)
    for (auto& bits : weights_[group].bits) bits.store(0, std::memory_order_relaxed);  // order: as above
}

// The bits of the bucket's marked parameters. Returns how the block should say it.
PresenceKind Committer::write_bits(std::size_t bucket, std::uint64_t round) noexcept {
  const Bucket& place = layout_.buckets()[bucket];
  auto* bits = reinterpret_cast<std::uint64_t*>(&block(bucket) + 1);
  std::uint32_t marked = 0;
  for (std::uint64_t start = 0; start < place.parameters; start += 64) {
    std::uint64_t word = 0;
    for (std::uint64_t i = start; i < place.parameters && i < start + 64; ++i) {
      // order: acquire, pairs with commit_parameter's exchange: that thread's slot bytes go out with our commit.
      const bool is_marked = marked_[layout_.order()[place.first + i]].load(std::memory_order_acquire) == round;
      word |= static_cast<std::uint64_t>(is_marked) << (i - start);
      marked += is_marked ? 1 : 0;
    }
    store_relaxed(bits[start / 64], word);  // order: relaxed, released by `committed`
  }
  if (marked == 0) return PresenceKind::none;
  return marked == place.parameters ? PresenceKind::all : PresenceKind::bits;
}

Status Committer::publish(std::size_t bucket, std::uint64_t round, const CommitRequest& request) noexcept {
  if (is_committed(bucket, round)) return Status::already_committed;
  double weight = 1;
  const std::size_t group = layout_.buckets()[bucket].group;
  // Who abstains without a weight leaves it to those who contribute.
  const bool says_weight = request.presence != Presence::none || request.weight != 0;
  if (const Status status = says_weight ? fix_weight(group, round, request.weight, weight) : Status::ok; status != Status::ok) return status;
  if (!says_weight) weights_[group].bits[(round + 1) % 2].store(0, std::memory_order_relaxed);  // order: relaxed, as in fix_weight
  PresenceKind presence = request.presence == Presence::all ? PresenceKind::all : PresenceKind::none;
  if (request.presence == Presence::marked) presence = write_bits(bucket, round);
  WorkerWords::publish_bucket(block(bucket), round, weight, presence);
  committed_.store(round, std::memory_order_relaxed);  // order: relaxed, see committed_round
  return Status::ok;
}

template <class Select>
Status Committer::commit_selected(std::size_t first, std::size_t last, Select&& select, const CommitRequest& request,
                                  std::uint64_t& ret_round) noexcept {
  std::uint64_t round = request.round;
  if (const Status status = resolve_round(round); status != Status::ok) return status;
  ret_round = round;
  bool any = false, selected = false;
  Status status = Status::ok;
  for (std::size_t bucket = first; bucket < last && status == Status::ok; ++bucket) {
    if (!names_any_of(bucket) || !select(bucket)) continue;
    selected = true;
    status = publish(bucket, round, request);
    if (status == Status::already_committed) status = Status::ok;
    else any = any || status == Status::ok;
  }
  if (any) words_.ring();
  if (!selected) return Status::not_found;  // a partial worker has registered nothing there
  return status == Status::ok && !any ? Status::already_committed : status;
}

Status Committer::commit_buckets(std::size_t first, std::size_t last, const CommitRequest& request, std::uint64_t& ret_round) noexcept {
  return commit_selected(first, last, [](std::size_t) { return true; }, request, ret_round);
}

Status Committer::commit_group(std::size_t group, const CommitRequest& request, std::uint64_t& ret_round) noexcept {
  const auto in_group = [&](std::size_t bucket) { return layout_.buckets()[bucket].group == group; };
  return commit_selected(0, layout_.buckets().size(), in_group, request, ret_round);
}

// Marks of this round in the bucket, this one included.
std::uint64_t Committer::count_mark(std::size_t bucket, std::uint64_t round) noexcept {
  std::atomic<std::uint64_t>& count = mark_counts_[bucket];
  std::uint64_t before = count.load(std::memory_order_relaxed);  // order: relaxed, the exchange below decides
  std::uint64_t after = 0;
  // The loop ends: it repeats only when another thread has marked a parameter of the same bucket meanwhile.
  do after = (before >> kCountBits == round ? before : round << kCountBits) + 1;
  // order: acq_rel, pairs with itself in the other threads: the last one to mark sees the slot bytes of all.
  while (!count.compare_exchange_weak(before, after, std::memory_order_acq_rel, std::memory_order_relaxed));
  return after & kCountMask;
}

Status Committer::commit_parameter(std::size_t parameter, const CommitRequest& request, std::uint64_t& ret_round) noexcept {
  std::uint64_t round = request.round;
  if (const Status status = resolve_round(round); status != Status::ok) return status;
  if (!names(parameter)) return Status::invalid;
  ret_round = round;
  const std::size_t bucket = layout_.placements()[parameter].bucket;
  double weight = 1;
  if (is_committed(bucket, round)) return Status::already_committed;
  if (const Status status = fix_weight(layout_.buckets()[bucket].group, round, request.weight, weight); status != Status::ok) return status;
  // order: release, pairs with write_bits' acquire load.
  if (marked_[parameter].exchange(round, std::memory_order_acq_rel) == round) return Status::already_committed;
  if (count_mark(bucket, round) != own_parameters_[bucket]) return Status::ok;
  const Status status = publish(bucket, round, {round, weight, Presence::marked});
  if (status == Status::ok) words_.ring();
  return status;
}

}  // namespace gradshm::core
