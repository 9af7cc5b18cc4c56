// Runs the round machine on real memory: looks for commits, has ready buckets summed, closes rounds, admits workers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/arena.hpp"
#include "daemon/member.hpp"
#include "daemon/publisher.hpp"
#include "daemon/reduction.hpp"
#include "protocol/round.hpp"

namespace gradshm::core {

class Rounds {
 public:
  // evict: called when a worker's own words are nonsense; must call remove.
  Rounds(Arena& arena, const ServerOptions& options, Publisher& publisher, std::function<void(const MemberPtr&, const std::string&)> evict);

  // One pass: true if anything happened. Bounded work: at most about 32 MiB of results are summed.
  bool turn();

  // After a restart: nothing opens until open_again. The next round is closed_round + 1; raised while survivors hand over.
  void hold(std::uint64_t closed_round);
  void rejoined(const MemberPtr& member);  // with the state that it had under the killed server
  void open_again();

  void ready(const MemberPtr& member);   // takes part from the next opening on
  void paused(const MemberPtr& member);
  void remove(const MemberPtr& member);  // left, died or evicted; its entry shows it before any round closes without it
  void stop_opening() noexcept { opening_ = false; }  // drain: the open round may still close, no other opens

  [[nodiscard]] std::uint64_t open_round() const noexcept { return machine_.open_round(); }
  [[nodiscard]] std::uint64_t closed_round() const noexcept { return machine_.open_round() - 1; }
  // Has committed everything to the open round and counts there, whatever it has done since.
  [[nodiscard]] bool counts(const Member& member) const noexcept { return taking_part_[member.rank].get() == &member && machine_.committed_all(member.rank); }
  [[nodiscard]] bool has_commits() const noexcept { return first_commit_ns_ != 0; }
  [[nodiscard]] unsigned threads() const noexcept { return reduction_.threads(); }
  [[nodiscard]] const RankSet& members() const noexcept { return machine_.members(); }
  [[nodiscard]] std::int64_t first_commit_ns() const noexcept { return static_cast<std::int64_t>(first_commit_ns_); }  // of the open round; 0 = none yet
  [[nodiscard]] std::vector<MemberPtr> late() const;  // members that have not committed everything

 private:
  bool scan();
  // What the member has committed to the open round since the last look.
  struct Found {
    bool any = false;
    std::string nonsense;  // what its slot says that cannot be; empty = nothing
  };
  Found take_commits(Member& member);
  bool take_contribution(Member& member, std::size_t bucket);
  void take_last_commits(const MemberPtr& member);
  void note_arrival(const Member& member, std::size_t bucket);
  bool reduce_ready();
  void close();
  void open();
  RoundRecord make_record() const;
  std::vector<double> group_weights() const;
  [[nodiscard]] std::vector<MemberPtr> members_in_order() const;
  [[nodiscard]] bool committed_everything(const Member& member, std::uint64_t round) const;

  Arena& arena_;
  const ServerOptions& options_;
  Publisher& publisher_;
  std::function<void(const MemberPtr&, const std::string&)> evict_;
  RoundMachine machine_;
  Reduction reduction_;
  std::array<MemberPtr, kMaxWorkers> taking_part_;  // of the open round, by rank; may be gone already if it had committed everything
  std::vector<MemberPtr> ready_;                    // to be admitted at the next opening
  std::vector<MemberPtr> paused_in_round_;          // came back paused, after they had committed everything to the round that opens next
  bool started_ = false;                            // round 1 has opened
  bool opening_ = true;
  bool held_ = false;                               // survivors of a restart are still coming back
  std::uint64_t first_commit_ns_ = 0, last_commit_ns_ = 0, reduce_ns_ = 0;
  int last_rank_ = -1;
};

}  // namespace gradshm::core
