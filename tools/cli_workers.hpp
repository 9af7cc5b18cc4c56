// The workers of one `gradshm run`: started together, waited for together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "cli_process.hpp"
#include "cli_server.hpp"
#include "cli_signals.hpp"

namespace gradshm::tools {

class Workers {
 public:
  Workers() = default;
  ~Workers();  // kills those that still run
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(const Command& command) { workers_.push_back({start(command), std::nullopt}); }
  // Until all have ended; passes signals on meanwhile. A second SIGINT kills whoever is left 5 s later.
  void wait(const Signals& signals, ServerProcess& server);
  // 0, or the code of the worker that failed first.
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }
  void report() const;  // a line a worker on stderr

 private:
  struct Worker {
    Child child;
    std::optional<Ending> ending;
  };
  [[nodiscard]] bool all_ended() const noexcept;
  void signal_all(int number) const;
  void pass_on(const Signal& signal);
  void reap();

  std::vector<Worker> workers_;  // by rank
  std::optional<core::Deadline> kill_at_;
  int interrupts_ = 0, exit_code_ = 0;
};

}  // namespace gradshm::tools
