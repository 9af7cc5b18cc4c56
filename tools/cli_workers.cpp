#include "cli_workers.hpp"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace gradshm::tools {
namespace {

constexpr std::int64_t kGraceNs = 5'000'000'000;

int milliseconds_until(const std::optional<core::Deadline>& deadline) {
  return deadline ? static_cast<int>(deadline->remaining_ns() / 1'000'000 + 1) : -1;
}

}  // namespace

Workers::~Workers() {
  signal_all(SIGKILL);
  for (Worker& worker : workers_)
    if (!worker.ending) worker.ending = wait_for(worker.child, -1);
}

bool Workers::all_ended() const noexcept {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.ending.has_value(); });
}

void Workers::signal_all(int number) const {
  for (const Worker& worker : workers_)
    if (!worker.ending) kill(worker.child.pid, number);  // not reaped yet, so the pid is still its own
}

void Workers::pass_on(const Signal& signal) {
  if (!signal.by_terminal) signal_all(signal.number);
  // Not SIGTERM: timeout(1) sends that twice at once.
  if (signal.number == SIGINT && ++interrupts_ == 2) kill_at_ = core::Deadline::after(kGraceNs);
}

void Workers::reap() {
  for (Worker& worker : workers_) {
    if (worker.ending) continue;
    worker.ending = wait_for(worker.child, 0);
    if (worker.ending && exit_code_ == 0) exit_code_ = worker.ending->code;
  }
}

void Workers::wait(const Signals& signals, ServerProcess& server) {
  for (reap(); !all_ended(); reap()) {
    std::vector<pollfd> events{{signals.fd(), POLLIN, 0}, {server.pidfd(), POLLIN, 0}};
    for (const Worker& worker : workers_) events.push_back({worker.ending ? -1 : worker.child.pidfd.get(), POLLIN, 0});
    (void)poll(events.data(), events.size(), milliseconds_until(kill_at_));
    while (const auto signal = signals.next()) pass_on(*signal);
    if (server.pidfd() >= 0) server.note_end();
    if (kill_at_ && kill_at_->passed()) signal_all(SIGKILL), kill_at_.reset();
  }
}

void Workers::report() const {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank)
    if (const Worker& worker = workers_[rank]; worker.ending)
      std::fprintf(stderr, "gradshm run: worker %zu (pid %d): %s\n", rank, worker.child.pid, describe(*worker.ending).c_str());
}

}  // namespace gradshm::tools
