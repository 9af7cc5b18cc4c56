// The server that `gradshm run` starts for its workers: a gradshmd, or one in a thread of this process.
#pragma once

#include <gradshm/server.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cli_process.hpp"
#include "cli_signals.hpp"

namespace gradshm::tools {

// Its own complaint is on stderr already; this says what it was started for.
struct ServerFailed : std::runtime_error {
  ServerFailed(const std::string& sentence, int code) : std::runtime_error(sentence), exit_code(code) {}
  int exit_code;
};

class RunServer {
 public:
  explicit RunServer(std::string instance) : instance_(std::move(instance)) {}
  virtual ~RunServer() = default;
  RunServer(const RunServer&) = delete;
  RunServer& operator=(const RunServer&) = delete;

  [[nodiscard]] virtual int pidfd() const noexcept = 0;  // readable once it has ended; -1, which poll passes over: has none, or is known to have ended
  // It runs, and round 1 has never been open. False if it does not say.
  [[nodiscard]] bool waits_for_round_1() const;
  // Says on stderr, once, that it has ended, if so.
  virtual void note_end() = 0;

 protected:
  std::string instance_;
  bool ended_ = false;
};

class ServerProcess : public RunServer {
 public:
  // Starts it and waits until it listens. Throws ServerFailed.
  ServerProcess(const std::string& instance, const std::vector<std::string>& options, const Signals& signals);
  ~ServerProcess() override;

  [[nodiscard]] int pidfd() const noexcept override { return ended_ ? -1 : child_.pidfd.get(); }
  void note_end() override;

 private:
  void wait_until_ready(const Signals& signals);
  void advise() const;
  void sweep() const;
  void stop();  // SIGTERM, and SIGKILL if that does not help within 10 s

  std::vector<std::string> options_;
  Child child_;
  bool killed_ = false;  // its workers look for another one by the beacon that it left
};

class EmbeddedServer : public RunServer {
 public:
  // Options as of gradshmd, "--name=value" each. Throws ServerFailed.
  EmbeddedServer(const std::string& instance, const std::vector<std::string>& options, bool verbose);

  [[nodiscard]] int pidfd() const noexcept override { return -1; }  // its workers will end, and then it is asked
  void note_end() override;

 private:
  std::optional<Server> server_;
};

}  // namespace gradshm::tools
