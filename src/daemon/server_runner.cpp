#include "daemon/server_runner.hpp"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <system_error>

#include "daemon/fork_guard.hpp"

namespace gradshm::core {
namespace {

constexpr const char* kThreadName = "gradshm-server";  // at most 15 bytes

// A thread inherits the mask of whoever makes it. Faults stay open: blocked, they would kill without a word.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&signals, fault);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

ServerRunner::ServerRunner(ServerOptions options) : server_(std::move(options)), fork_epoch_(server_fork_epoch()) {}

ServerRunner::~ServerRunner() {
  // order: relaxed, our caller lets nobody else in now. A second stop would cut the drain of the first short.
  if (!asked_to_stop_.load(std::memory_order_relaxed)) stop();
  std::unique_lock lock(mutex_);
  has_ended_.wait(lock, [&] { return state_ != State::running; });
  lock.unlock();
  if (thread_.joinable()) thread_.join();
}

bool ServerRunner::forked() const noexcept { return fork_epoch_ != server_fork_epoch(); }

void ServerRunner::begin() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::running) throw Error(Status::invalid, "the server '" + name() + "' runs already");
  if (state_ == State::ended) throw Error(Status::invalid, "the server '" + name() + "' has ended: create a new one");
  state_ = State::running;
}

std::exception_ptr ServerRunner::serve() noexcept {
  std::exception_ptr failure;
  try {
    server_.run();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  state_ = State::ended;
  has_ended_.notify_all();  // under the lock: whoever wakes may destroy us
  return failure;
}

void ServerRunner::run() {
  begin();
  if (const std::exception_ptr failure = serve()) std::rethrow_exception(failure);
}

void ServerRunner::start() {
  begin();
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { serve(); });
    pthread_setname_np(thread_.native_handle(), kThreadName);
  } catch (const std::system_error& error) {
    const std::lock_guard lock(mutex_);
    state_ = State::idle;
    throw Error(Status::system, std::string("cannot start the server's thread: ") + error.what());
  }
}

void ServerRunner::stop() noexcept {
  asked_to_stop_.store(true, std::memory_order_relaxed);  // order: relaxed, read by the destructor only
  server_.stop();
}

void ServerRunner::wait(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  if (state_ == State::idle) throw Error(Status::invalid, "nobody runs the server '" + name() + "': there is no end to wait for");
  const auto ended = [&] { return state_ == State::ended; };
  if (deadline.is_never()) has_ended_.wait(lock, ended);
  else if (!has_ended_.wait_for(lock, std::chrono::nanoseconds(deadline.remaining_ns()), ended)) throw Error(Status::timeout, "the server '" + name() + "' still runs");
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace gradshm::core
