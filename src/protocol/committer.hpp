// What a worker process remembers about its own commits: group weights, marks of parameters. Private memory, several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "layout/layout.hpp"
#include "memory/slot.hpp"
#include "protocol/worker_words.hpp"

namespace gradshm::core {

enum class Presence : int { all = GRADSHM_PRESENT_ALL, marked = GRADSHM_PRESENT_MARKED, none = GRADSHM_PRESENT_NONE };

struct CommitRequest {
  std::uint64_t round = 0;  // 0 = the open one
  double weight = 0;        // 0 = as the group's first commit of the round, else 1
  Presence presence = Presence::all;
};

class Committer {
 public:
  // named: by parameter index, what a partial worker registered; empty = everything. slot: start of the mapped slot object.
  Committer(const Layout& layout, const SlotShape& shape, std::byte* slot, std::vector<bool> named, const WorkerWords& words);

  // Buckets of [first, last). ret_round: which round it was.
  Status commit_buckets(std::size_t first, std::size_t last, const CommitRequest& request, std::uint64_t& ret_round) noexcept;
  Status commit_group(std::size_t group, const CommitRequest& request, std::uint64_t& ret_round) noexcept;
  Status commit_parameter(std::size_t parameter, const CommitRequest& request, std::uint64_t& ret_round) noexcept;

  [[nodiscard]] std::uint64_t committed_round() const noexcept;  // newest round with any commit; 0 = none
  [[nodiscard]] bool names(std::size_t parameter) const noexcept { return named_.empty() || named_[parameter]; }
  [[nodiscard]] bool names_any_of(std::size_t bucket) const noexcept { return own_parameters_[bucket] != 0; }
  // After a pause: an incomplete commit to the open round no longer stands (the server has dropped it), and the next round may be this
  // one again or a much later one. Takes its commit words, marks and weights back. Not beside a commit.
  void withdraw() noexcept;
  [[nodiscard]] std::size_t missing_buckets(std::uint64_t round) const noexcept;  // own buckets not yet committed to it

 private:
  // A group's weight, f64 bits by parity of the round; 0 = not fixed yet, which no weight is. Whoever commits to round r resets the word
  // of r+1 before it publishes: nobody can commit to r+1 before every bucket of this worker is published for r.
  struct GroupWeight {
    std::atomic<std::uint64_t> bits[2] = {0, 0};
  };
  [[nodiscard]] CommitBlock& block(std::size_t bucket) const noexcept;
  [[nodiscard]] bool is_committed(std::size_t bucket, std::uint64_t round) const noexcept;
  Status resolve_round(std::uint64_t& round) const noexcept;
  Status fix_weight(std::size_t group, std::uint64_t round, double asked, double& ret_weight) noexcept;
  Status publish(std::size_t bucket, std::uint64_t round, const CommitRequest& request) noexcept;
  PresenceKind write_bits(std::size_t bucket, std::uint64_t round) noexcept;
  std::uint64_t count_mark(std::size_t bucket, std::uint64_t round) noexcept;
  template <class Select>
  Status commit_selected(std::size_t first, std::size_t last, Select&& select, const CommitRequest& request, std::uint64_t& ret_round) noexcept;

  const Layout& layout_;
  const SlotShape& shape_;
  std::byte* slot_;
  std::vector<bool> named_;
  std::vector<std::uint32_t> own_parameters_;  // by bucket
  const WorkerWords& words_;
  std::unique_ptr<GroupWeight[]> weights_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> marked_;       // by parameter: newest round it was marked in
  std::unique_ptr<std::atomic<std::uint64_t>[]> mark_counts_;  // by bucket: round << 24 | marks in it
  std::atomic<std::uint64_t> committed_{0};
};

}  // namespace gradshm::core
