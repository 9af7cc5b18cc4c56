// A descriptor of this very process, to be handed to others who want to see it end.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace gradshm::core {

// Throws Error naming the call.
[[nodiscard]] inline UniqueFd own_pidfd() {
  constexpr int kPidfdOpen = 434;  // SYS_pidfd_open, Linux 5.3
  UniqueFd fd(static_cast<int>(syscall(kPidfdOpen, getpid(), 0)));
  if (!fd) throw system_error("pidfd_open (Linux 5.4 or newer is needed)", errno);
  return fd;
}

}  // namespace gradshm::core
