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

void say(std::size_t rank, const Child& child, const Ending& ending) {
  std::fprintf(stderr, "gradshm run: worker %zu (pid %d): %s\n", rank, child.pid, describe(ending).c_str());
}

std::string how_it_ended(const Ending& ending) { return ending.signal == 0 ? "ended with " + describe(ending) : "was " + describe(ending); }

}  // namespace

Workers::~Workers() {
  signal_all(SIGKILL);
  for (Worker& worker : workers_)
    if (!worker.ending) worker.ending = wait_for(worker.child, -1);
}

int Workers::running() const noexcept {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) { return !worker.ending; }));
}

void Workers::signal_all(int number) const {
  for (const Worker& worker : workers_)
    if (!worker.ending) kill(worker.child.pid, number);  // not reaped yet, so the pid is still its own
}

void Workers::pass_on(const Signal& signal) {
  if (!signal.by_terminal) signal_all(signal.number);
  is_ending_ = is_ending_ || asks_to_end(signal);
  // Not SIGTERM: timeout(1) sends that twice at once.
  if (signal.number == SIGINT && ++interrupts_ == 2) kill_at_ = core::Deadline::after(kGraceNs);
}

void Workers::reap() {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    if (worker.ending) continue;
    worker.ending = wait_for(worker.child, 0);
    if (!worker.ending || worker.ending->code == 0) continue;
    say(rank, worker.child, *worker.ending);
    if (exit_code_ == 0) exit_code_ = worker.ending->code, first_failed_ = rank;
  }
}

void Workers::end_if_too_few(const RunServer& server, int expect) {
  // More than we started: the missing ones come from elsewhere, and nobody knows how many.
  if (is_ending_ || !first_failed_ || expect > static_cast<int>(workers_.size())) return;
  if (running() == 0 || running() >= expect || !server.waits_for_round_1()) return;
  std::fprintf(stderr, "gradshm run: worker %zu %s before round 1 opened: the others would wait for it; ending the run\n", *first_failed_,
               how_it_ended(*workers_[*first_failed_].ending).c_str());
  is_ending_ = true;
  signal_all(SIGTERM), signal_all(SIGCONT);
  kill_at_ = core::Deadline::after(kGraceNs);
}

void Workers::wait(const Signals& signals, RunServer& server, int expect) {
  const auto look = [&] { reap(), end_if_too_few(server, expect); };
  for (look(); running() > 0; look()) {
    std::vector<pollfd> events{{signals.fd(), POLLIN, 0}, {server.pidfd(), POLLIN, 0}};
    for (const Worker& worker : workers_) events.push_back({worker.ending ? -1 : worker.child.pidfd.get(), POLLIN, 0});
    (void)poll(events.data(), events.size(), milliseconds_until(kill_at_));
    while (const auto signal = signals.next()) pass_on(*signal);
    server.note_end();
    if (kill_at_ && kill_at_->passed()) signal_all(SIGKILL), kill_at_.reset();
  }
}

void Workers::report() const {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank)
    if (const Worker& worker = workers_[rank]; worker.ending && worker.ending->code == 0) say(rank, worker.child, *worker.ending);
}

}  // namespace gradshm::tools
