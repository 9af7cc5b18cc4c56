// SIGINT and SIGTERM as a flag, so that a worker leaves its instance instead of vanishing from it.
#pragma once

#include <csignal>
#include <exception>

namespace fashion {

namespace detail {
inline volatile std::sig_atomic_t stop_signal = 0;
}

inline void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) { detail::stop_signal = number; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // kept for a second signal: Ctrl-C reaches us from the terminal and again from `gradshm run`
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// 0: none came.
[[nodiscard]] inline int stop_signal() noexcept { return detail::stop_signal; }

class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

inline void throw_if_stopped() {
  if (stop_signal() != 0) throw Interrupted();
}

}  // namespace fashion
