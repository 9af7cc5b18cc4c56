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
  // Until all have ended; passes signals on and says on stderr who failed meanwhile. A second SIGINT kills whoever is left 5 s later.
  // Round 1 opens with `expect` workers: if somebody failed before and fewer are left, the others would wait for ever, and are ended.
  void wait(const Signals& signals, RunServer& server, int expect);
  // 0, or the code of the worker that failed first.
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }
  void report() const;  // a line a worker on stderr, without those that failed: they have theirs

 private:
  struct Worker {
    Child child;
    std::optional<Ending> ending;
  };
  [[nodiscard]] int running() const noexcept;
  void signal_all(int number) const;
  void pass_on(const Signal& signal);
  void reap();
  void end_if_too_few(const RunServer& server, int expect);

  std::vector<Worker> workers_;  // by rank
  std::optional<std::size_t> first_failed_;
  std::optional<core::Deadline> kill_at_;
  int interrupts_ = 0, exit_code_ = 0;
  bool is_ending_ = false;  // somebody was asked to end them, or they wait for nobody
};

}  // namespace gradshm::tools
