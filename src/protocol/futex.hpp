// Sleeping on a shared word. Not private: the word is in memory of several processes, and may be mapped read-only.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <ctime>

namespace gradshm::core {

// Returns when woken, when the word is not `seen`, after timeout_ns, or for no reason: the caller looks again.
inline void futex_wait(const std::uint32_t& word, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

inline void futex_wake_all(const std::uint32_t& word) noexcept { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace gradshm::core
