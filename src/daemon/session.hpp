// One connection, from accept to its end.
#pragma once

#include <cstdint>
#include <memory>

#include "base/unique_fd.hpp"
#include "daemon/member.hpp"

namespace gradshm::core {

// How long a closed connection of a member may wait for its process to be seen dead, and what is said then.
inline constexpr int kDeathWaitMs = 5;
inline constexpr const char* kDied = "its process ended without leaving";

struct Session {
  std::uint64_t id = 0;
  UniqueFd socket;
  UniqueFd pidfd;      // after hello
  int pid = 0;         // as SO_PEERCRED says; 0 in another pid namespace
  unsigned uid = 0;
  bool greeted = false;
  MemberPtr member;    // after join
  std::uint64_t held_bytes = 0;  // evicted or left: the slot that its process may still have mapped. Its end, or end of file, frees it

  // Waits up to that long for it.
  [[nodiscard]] bool process_ended(int timeout_ms) const noexcept;
};

// The peer's pid and uid by SO_PEERCRED. Throws Error(permission) unless it is our user or root, or the kernel has let it through to a
// socket that belongs to a group.
void identify_peer(Session& session, bool group_may_attach);
// Throws Error(corrupt) unless `fd` is a pidfd, and of that pid where both are known.
void check_pidfd(const UniqueFd& fd, int pid);

}  // namespace gradshm::core
