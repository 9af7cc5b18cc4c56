// A server together with whoever runs it: a thread of ours, or one of the caller's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "daemon/server.hpp"

namespace gradshm::core {

class ServerRunner {
 public:
  explicit ServerRunner(ServerOptions options);
  ~ServerRunner();  // stop, and waits for the end of run
  ServerRunner(const ServerRunner&) = delete;
  ServerRunner& operator=(const ServerRunner&) = delete;

  // In this thread until stop. Once only, either this or start. Throws Error(invalid) otherwise, and what ended the server.
  void run();
  void start();          // the same in a thread of its own, which takes no signals
  void stop() noexcept;  // as Server::stop
  // Until run has ended; throws what ended it, Error(timeout), Error(invalid) where nobody runs it.
  void wait(const Deadline& deadline);
  [[nodiscard]] const std::string& name() const noexcept { return server_.name(); }
  [[nodiscard]] bool forked() const noexcept;  // this is a child's copy: nothing of it may be used or destroyed

 private:
  enum class State { idle, running, ended };
  void begin();
  std::exception_ptr serve() noexcept;  // afterwards somebody else may have destroyed this

  Server server_;
  unsigned fork_epoch_;
  std::mutex mutex_;  // of state_ and failure_
  std::condition_variable has_ended_;
  State state_ = State::idle;
  std::exception_ptr failure_;
  std::atomic<bool> asked_to_stop_{false};
  std::thread thread_;
};

}  // namespace gradshm::core
