// Turns ready buckets into sums: which slots, which weights, which divisor; and stores bucket headers around it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/arena.hpp"
#include "daemon/member.hpp"
#include "daemon/options.hpp"
#include "protocol/rank_set.hpp"
#include "reduce/reduce.hpp"

namespace gradshm::core {

// Of one bucket's newest reduction.
struct BucketStats {
  double sum_of_squares = 0;
  std::uint64_t nonfinite_result = 0;
  std::vector<std::pair<unsigned, std::uint64_t>> nonfinite_by_rank;  // only those with some
  RankSet contributors;
};

class Reduction {
 public:
  Reduction(Arena& arena, Op op, unsigned threads) : arena_(arena), op_(op), reducer_(threads), stats_(arena.layout.buckets().size()) {}

  // `members`: of the open round, in rank order; every one has committed every bucket in `buckets`. Returns bytes read and written.
  std::uint64_t reduce(std::span<const std::size_t> buckets, std::span<const MemberPtr> members, std::uint64_t round);
  [[nodiscard]] const BucketStats& stats(std::size_t bucket) const noexcept { return stats_[bucket]; }
  [[nodiscard]] unsigned threads() const noexcept { return reducer_.threads(); }

 private:
  struct Run;
  struct Plan;
  void plan_bucket(std::size_t bucket, std::span<const MemberPtr> members, Plan& plan) const;
  void plan_run(std::size_t bucket, std::size_t begin, std::size_t end, std::vector<const Member*> sources, Plan& plan) const;
  void take_stats(const Plan& plan, std::span<const SumStats> stats);
  void publish_header(std::size_t bucket, std::span<const MemberPtr> members, std::uint64_t round);
  void publish_parameters(std::size_t bucket, std::span<const MemberPtr> members);

  Arena& arena_;
  Op op_;
  HostReducer reducer_;
  std::vector<BucketStats> stats_;
};

}  // namespace gradshm::core
