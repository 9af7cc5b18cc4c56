// How processes wake each other: sleeping on a shared word (not private: it is in memory of several processes, and may be mapped read-only),
// and the server's doorbells. A test that puts its own atomics in place brings its own of these too.
#pragma once

#ifdef GRADSHM_ATOMICS_HEADER
#include GRADSHM_ATOMICS_HEADER
#else

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

// An eventfd that the server polls.
inline void ring_doorbell(int doorbell) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(doorbell, &one, sizeof one);  // full = rung already
}

}  // namespace gradshm::core

#endif
