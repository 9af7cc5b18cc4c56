// After the server was killed: the worker looks for its successor and hands over what it has. Nothing that this handle gave out changes:
// the successor's control lies at the old one's address, its result too once a round of its own has closed, descriptors keep their numbers.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>

#include "base/text.hpp"
#include "client/handle.hpp"
#include "protocol/atomics.hpp"

namespace gradshm::core {
namespace {

// One attempt holds the handle's lock. The shortest is for poll, which would never get through a hello with no time at all.
constexpr std::int64_t kShortestAttemptNs = 10'000'000, kLongestAttemptNs = 500'000'000;
constexpr std::int64_t kFirstPauseNs = 2'000'000, kLongestPauseNs = 100'000'000;

void pause_for(std::int64_t ns) {
  const timespec pause{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&pause, nullptr);
}

// `to` keeps its number: threads that look at it meanwhile see the old file or the new one.
void replace_descriptor(const UniqueFd& to, const UniqueFd& from) {
  if (dup3(from.get(), to.get(), O_CLOEXEC) < 0) throw system_error("dup3 of a descriptor", errno);
}

bool passes(Status status) { return status == Status::no_server || status == Status::daemon_lost || status == Status::timeout; }

}  // namespace

std::string Handle::refusal() const {
  const std::lock_guard lock(refusal_mutex_);
  return refusal_;
}

bool Handle::was_stopped() const noexcept {
  // order: relaxed, one word; nothing is read through it.
  return load_relaxed(view_->control().words->state) == static_cast<std::uint32_t>(ServerState::stopped);
}

// ok: the successor has taken us back; timeout: the caller's deadline; daemon_lost: rejoin-timeout passed, or the server was stopped as
// planned; else why the successor refuses.
Status Handle::rejoin(const Deadline& deadline) noexcept {
  try {
    for (std::int64_t pause_ns = kFirstPauseNs;; pause_ns = std::min(2 * pause_ns, kLongestPauseNs)) {
      if (const auto status = try_rejoin(deadline)) return *status;
      if (deadline.passed()) return Status::timeout;
      pause_for(std::min(pause_ns, deadline.remaining_ns()));
    }
  } catch (const std::bad_alloc&) {
    return Status::no_memory;
  } catch (const std::exception&) {
    return Status::internal;
  }
}

// nullopt: try again.
std::optional<Status> Handle::try_rejoin(const Deadline& deadline) {
  const std::unique_lock lock(command_, std::try_to_lock);
  if (!lock) return std::nullopt;               // another thread of this handle is at it
  if (words_.daemon_lives()) return Status::ok;  // and has done it
  if (was_stopped()) return Status::daemon_lost;
  const std::int64_t now = now_ns();
  if (lost_ns_ == 0) lost_ns_ = now;
  try {
    const Deadline attempt = Deadline::after(std::clamp(deadline.remaining_ns(), kShortestAttemptNs, kLongestAttemptNs));
    if (!successor_) ask_successor(attempt);
    take_successor(await_packet(successor_->socket.get(), attempt));
    return Status::ok;
  } catch (const Error& error) {
    if (!passes(error.status())) return refused(error);
    if (error.status() != Status::timeout) successor_.reset();  // a hand-over that was sent is never given up, only its answer awaited later
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return refused(Error(Status::internal, error.what()));
  }
  if (now - lost_ns_ >= view_->header().rejoin_timeout_ns) return Status::daemon_lost;
  return std::nullopt;
}

void Handle::ask_successor(const Deadline& deadline) {
  Connection connection = connect_to(instance_, deadline);
  Rejoin request;
  request.generation = worker_->generation, request.rank = worker_->rank, request.partial = worker_->partial ? 1u : 0u;
  request.incarnation = view_->header().object.incarnation;
  std::memcpy(request.label, worker_->label.data(), std::min(worker_->label.size(), sizeof request.label - 1));
  const std::array<int, 5> fds{view_->control_file().fd(), view_->layout_file().fd(), worker_->slot_file.fd(), worker_->doorbell.get(), worker_->manifest.fd()};
  send_request(connection, request, fds);
  successor_.emplace(std::move(connection));
}

void Handle::take_successor(const Packet& answer) {
  const auto reply = parse<RejoinOk>(answer, 2);
  const std::uint64_t closed = words_.closed_round();  // of the killed server
  const auto take = [&](std::size_t i) { return MemFd(UniqueFd(fcntl(answer.fds[i].get(), F_DUPFD_CLOEXEC, 0))); };
  std::unique_lock result(result_mutex_);
  // A round that the server before this one closed, and that no wait has shown yet: its result would be lost with the switch.
  if (result_pending_.load(std::memory_order_relaxed) && closed > result_until_.load(std::memory_order_relaxed))  // order: relaxed (both), under the lock
    view_->adopt_result();
  view_->adopt(take(0), take(1), reply.incarnation);
  result_until_.store(closed, std::memory_order_relaxed);    // order: relaxed, released by result_pending_
  result_pending_.store(true, std::memory_order_release);    // order: release, pairs with show_newest_result's acquire
  result.unlock();
  replace_descriptor(connection_.daemon_pidfd, successor_->daemon_pidfd);
  replace_descriptor(connection_.socket, successor_->socket);
  connection_.incarnation = reply.incarnation, connection_.daemon_pid = successor_->daemon_pid;
  successor_.reset(), lost_ns_ = 0;
  // A commit that looked at the old server's `idle` has rung nobody; the new one's is looked at from here on.
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(worker_->doorbell.get(), &one, sizeof one);
}

// Under command_.
Status Handle::refused(const Error& error) {
  {
    const std::lock_guard lock(refusal_mutex_);
    refusal_ = std::string("the server '") + instance_ + "' was killed, and its successor refuses this worker: " + error.what();
  }
  successor_.reset();
  if (error.status() == Status::evicted) view_->show_eviction(worker_->rank);
  return error.status();
}

// Once a round of the new server has closed, all views of the old result have ended: whoever took part has committed to that round.
void Handle::show_newest_result(std::uint64_t round) noexcept {
  if (!result_pending_.load(std::memory_order_acquire)) return;         // order: acquire, pairs with take_successor's release
  if (round <= result_until_.load(std::memory_order_relaxed)) return;  // order: relaxed, acquired above
  try {
    const std::lock_guard lock(result_mutex_);
    if (!result_pending_.load(std::memory_order_relaxed)) return;  // order: relaxed, under the lock
    view_->adopt_result();
    result_pending_.store(false, std::memory_order_release);  // order: release, pairs with the acquire above in other threads
  } catch (const std::exception&) {
    // No memory for the mapping: the next wait tries again.
  }
}

}  // namespace gradshm::core
