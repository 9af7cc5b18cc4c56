#include "daemon/reduction.hpp"

#include <algorithm>
#include <bit>

#include "protocol/atomics.hpp"
#include "protocol/seqlock.hpp"

namespace gradshm::core {

struct Reduction::Run {
  std::size_t bucket = 0;
  std::vector<const Member*> members;
  std::vector<const void*> sources;
  std::vector<double> weights;
  double divisor = 1;
  std::uint64_t numel = 0;
  void* out = nullptr;
};

struct Reduction::Plan {
  std::vector<Run> runs;
  std::uint64_t bytes = 0;
};

namespace {

bool is_uniform(std::size_t bucket, std::span<const MemberPtr> members) {
  return std::all_of(members.begin(), members.end(),
                     [&](const MemberPtr& member) { return member->contributions[bucket].presence != PresenceKind::bits; });
}

std::vector<const Member*> sources_of(std::size_t bucket, std::size_t position, std::span<const MemberPtr> members) {
  std::vector<const Member*> sources;
  for (const MemberPtr& member : members)
    if (member->contributions[bucket].has(position)) sources.push_back(member.get());
  return sources;
}

double weight_sum(std::size_t bucket, std::span<const Member* const> members) {
  double sum = 0;
  for (const Member* member : members) sum += member->contributions[bucket].weight;
  return sum;
}

}  // namespace

// Positions [begin, end) of the bucket have these sources. The padding between parameters is summed too: it is cheaper than to stop.
void Reduction::plan_run(std::size_t bucket, std::size_t begin, std::size_t end, std::vector<const Member*> sources, Plan& plan) const {
  const Layout& layout = arena_.layout;
  const Bucket& place = layout.buckets()[bucket];
  const Placement& first = layout.placements()[layout.order()[place.first + begin]];
  const Placement& last = layout.placements()[layout.order()[place.first + end - 1]];
  Run run;
  run.bucket = bucket;
  run.numel = (last.offset + last.bytes - first.offset) / element_bytes(place.dtype);
  run.out = arena_.result.gradients + first.offset;
  bool all_one = true;
  for (const Member* member : sources) {
    run.sources.push_back(member->slot.at<const std::byte>(arena_.shape.gradients + first.offset));
    run.weights.push_back(member->contributions[bucket].weight);
    all_one = all_one && run.weights.back() == 1;
  }
  if (op_ != Op::sum && !sources.empty()) run.divisor = weight_sum(bucket, sources);
  if (op_ != Op::weighted_mean || all_one) run.weights.clear();
  plan.bytes += (last.offset + last.bytes - first.offset) * (sources.size() + 1);
  run.members = std::move(sources);
  plan.runs.push_back(std::move(run));
}

void Reduction::plan_bucket(std::size_t bucket, std::span<const MemberPtr> members, Plan& plan) const {
  const std::size_t parameters = arena_.layout.buckets()[bucket].parameters;
  if (is_uniform(bucket, members)) return plan_run(bucket, 0, parameters, sources_of(bucket, 0, members), plan);
  std::size_t begin = 0;
  std::vector<const Member*> sources = sources_of(bucket, 0, members);
  for (std::size_t position = 1; position < parameters; ++position) {
    std::vector<const Member*> here = sources_of(bucket, position, members);
    if (here == sources) continue;
    plan_run(bucket, begin, position, std::move(sources), plan);
    begin = position, sources = std::move(here);
  }
  plan_run(bucket, begin, parameters, std::move(sources), plan);
}

std::uint64_t Reduction::reduce(std::span<const std::size_t> buckets, std::span<const MemberPtr> members, std::uint64_t round) {
  Plan plan;
  for (const std::size_t bucket : buckets) {
    stats_[bucket] = {};
    // order: relaxed, the fence below puts it before the bytes. Pairs with the check after an observer's copy.
    store_relaxed(arena_.result.buckets[bucket].writing, round);
    plan_bucket(bucket, members, plan);
  }
  // Non-temporal stores of the sums may otherwise be seen before `writing`, and a reader would keep a torn copy.
  fence_stores();
  std::vector<SumRun> runs;
  for (const Run& run : plan.runs) {
    const DType dtype = arena_.layout.buckets()[run.bucket].dtype;
    runs.push_back({dtype, run.numel, run.sources, run.weights, run.divisor, run.out});
  }
  std::vector<SumStats> stats(runs.size());
  reducer_.sum(runs, stats);
  take_stats(plan, stats);
  for (const std::size_t bucket : buckets) publish_header(bucket, members, round);
  return plan.bytes;
}

void Reduction::take_stats(const Plan& plan, std::span<const SumStats> stats) {
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const Run& run = plan.runs[i];
    BucketStats& bucket = stats_[run.bucket];
    bucket.sum_of_squares += stats[i].sum_of_squares;
    bucket.nonfinite_result += stats[i].nonfinite_result;
    for (std::size_t source = 0; source < run.members.size(); ++source) {
      bucket.contributors.insert(run.members[source]->rank);
      if (!stats[i].nonfinite_by_source.empty() && stats[i].nonfinite_by_source[source] != 0)
        bucket.nonfinite_by_rank.emplace_back(run.members[source]->rank, stats[i].nonfinite_by_source[source]);
    }
  }
}

void Reduction::publish_header(std::size_t bucket, std::span<const MemberPtr> members, std::uint64_t round) {
  BucketResult& shared = arena_.result.buckets[bucket];
  double weight = 0;
  for (const MemberPtr& member : members)
    if (stats_[bucket].contributors.contains(member->rank)) weight += member->contributions[bucket].weight;
  BucketResult value;
  std::copy_n(stats_[bucket].contributors.words().begin(), kRankWords, value.contributors);
  value.weight_sum_bits = std::bit_cast<std::uint64_t>(weight);
  value.count = stats_[bucket].contributors.size();
  value.uniform = is_uniform(bucket, members) ? 1u : 0u;
  if (value.uniform == 0) publish_parameters(bucket, members);
  constexpr std::size_t kStart = offsetof(BucketResult, contributors), kBytes = offsetof(BucketResult, uniform) + 4 - kStart;
  copy_words_in(reinterpret_cast<std::byte*>(&shared) + kStart, reinterpret_cast<const std::byte*>(&value) + kStart, kBytes);
  // order: relaxed, readers believe it up to the closed round only, and Publisher::close has released everything of that. The sums were
  // fenced by the threads that made them.
  store_relaxed(shared.round, round);
}

void Reduction::publish_parameters(std::size_t bucket, std::span<const MemberPtr> members) {
  const Bucket& place = arena_.layout.buckets()[bucket];
  for (std::size_t position = 0; position < place.parameters; ++position) {
    const auto sources = sources_of(bucket, position, members);
    ParameterResult& shared = arena_.result.parameters[arena_.layout.order()[place.first + position]];
    // order: relaxed, both are under the bucket's round word.
    store_relaxed(shared.weight_sum_bits, std::bit_cast<std::uint64_t>(weight_sum(bucket, sources)));
    store_relaxed(shared.count, sources.size());
  }
}

}  // namespace gradshm::core
