// The gradshmd that `gradshm run` starts for its workers.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "cli_process.hpp"
#include "cli_signals.hpp"

namespace gradshm::tools {

// Its own complaint is on stderr already; this says what it was started for.
struct ServerFailed : std::runtime_error {
  ServerFailed(const std::string& sentence, int code) : std::runtime_error(sentence), exit_code(code) {}
  int exit_code;
};

class ServerProcess {
 public:
  // Starts it and waits until it listens. Throws ServerFailed.
  ServerProcess(const std::string& instance, const std::vector<std::string>& options, const Signals& signals);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] int pidfd() const noexcept { return ended_ ? -1 : child_.pidfd.get(); }  // poll passes over -1
  // It runs, and round 1 has never been open. False if it does not say.
  [[nodiscard]] bool waits_for_round_1() const;
  // Call when pidfd() is readable: says on stderr that it is gone.
  void note_end();

 private:
  void wait_until_ready(const Signals& signals);
  void sweep() const;
  void stop();  // SIGTERM, and SIGKILL if that does not help within 10 s

  std::string instance_;
  Child child_;
  bool ended_ = false;
};

}  // namespace gradshm::tools
