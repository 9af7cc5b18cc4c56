// Monotonic time in nanoseconds, and deadlines. CLOCK_REALTIME is never asked, so setting the clock hurts nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace gradshm::core {

[[nodiscard]] inline std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Deadline {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // timeout_ns < 0: never.
  [[nodiscard]] static Deadline after(std::int64_t timeout_ns) noexcept {
    const std::int64_t now = now_ns();
    return Deadline(timeout_ns < 0 || timeout_ns > kNever - now ? kNever : now + timeout_ns);
  }
  [[nodiscard]] bool is_never() const noexcept { return at_ns_ == kNever; }
  [[nodiscard]] std::int64_t remaining_ns() const noexcept {
    return is_never() ? kNever : (at_ns_ > now_ns() ? at_ns_ - now_ns() : 0);
  }
  [[nodiscard]] bool passed() const noexcept { return !is_never() && now_ns() >= at_ns_; }

 private:
  explicit Deadline(std::int64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace gradshm::core
