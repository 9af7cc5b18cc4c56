// A lock that can be waited for with a time-out. std::timed_mutex is one, too, but waits in pthread_mutex_clocklock, which g++ 12's
// thread sanitizer does not know: it would report every unlock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace gradshm::core {

// Named as the standard's TimedLockable, for std::unique_lock and std::lock_guard.
class Turn {
 public:
  void lock() {
    std::unique_lock hold(mutex_);
    free_.wait(hold, [this] { return !taken_; });
    taken_ = true;
  }

  bool try_lock() {
    const std::lock_guard hold(mutex_);
    return !std::exchange(taken_, true);
  }

  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> patience) {
    std::unique_lock hold(mutex_);
    return free_.wait_for(hold, patience, [this] { return !taken_; }) && (taken_ = true);
  }

  void unlock() {
    const std::lock_guard hold(mutex_);
    taken_ = false;
    free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

}  // namespace gradshm::core
