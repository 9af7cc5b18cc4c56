// Everything the server stores into the control object.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/arena.hpp"
#include "daemon/member.hpp"
#include "protocol/rank_set.hpp"

namespace gradshm::core {

class Publisher {
 public:
  explicit Publisher(Arena& arena) : control_(arena.control.view), shape_(arena.shape) {}

  void member(const Member& member);                         // the whole entry, the word last
  void member_progress(const Member& member, std::size_t arrived, std::uint64_t commit_ns, std::uint64_t round);
  void free_entry(unsigned rank, std::uint64_t generation);  // whoever waits there sees that he is out
  void bucket_arrived(std::size_t bucket, unsigned members);
  void bucket_reduced(std::size_t bucket, std::uint64_t round);
  void bytes_reduced(std::uint64_t bytes);
  void record(RoundRecord record, const std::vector<double>& group_weights);
  void adopt_records(const Control& old, std::uint64_t groups);  // what a killed server's control object still tells of its rounds
  void close(std::uint64_t round);
  void open(std::uint64_t opened_ns);
  void member_count(unsigned members);  // of the open round
  void first_commit(std::uint64_t at_ns);
  void event(EventKind kind, const Member* member, std::uint64_t round, std::string_view text);
  void state(ServerState state);
  void progress(std::uint64_t now);
  void idle(bool may_sleep);
  void begin_wake_seq(std::uint32_t at);  // before anybody has it mapped
  void turn_futex();                  // whoever is about to sleep does not
  void wake();                        // turn_futex, and wakes all sleepers
  void wake(std::span<const MemberPtr> members);  // the same, without the system call where none of these sleeps

 private:
  Control control_;
  const SlotShape& shape_;
  std::uint64_t events_ = 0;
};

}  // namespace gradshm::core
