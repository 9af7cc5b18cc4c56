#include "cli_server.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/clock.hpp"
#include "cli_common.hpp"
#include "client/snapshot.hpp"
#include "memory/beacon.hpp"
#include "memory/rundir.hpp"

namespace gradshm::tools {
namespace {

constexpr std::int64_t kReadyNs = 30'000'000'000;
constexpr int kLookMs = 5, kStopMs = 10'000;

// $GRADSHM_DAEMON, else beside this program, else in PATH.
std::string find_gradshmd() {
  if (const char* chosen = std::getenv("GRADSHM_DAEMON"); chosen != nullptr && *chosen != '\0') return chosen;
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string own(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::string beside = own.substr(0, own.rfind('/') + 1) + "gradshmd";
  return access(beside.c_str(), X_OK) == 0 ? beside : "gradshmd";
}

Child start_gradshmd(const std::vector<std::string>& options) {
  Command command;
  command.arguments = {find_gradshmd()};
  command.arguments.insert(command.arguments.end(), options.begin(), options.end());
  command.own_group = true;
  try {
    return start(command);
  } catch (const std::system_error& error) {
    throw ServerFailed("cannot start the server: " + std::string(error.what()) + " (set GRADSHM_DAEMON to the path of gradshmd)", kNoServer);
  }
}

}  // namespace

ServerProcess::ServerProcess(const std::string& instance, const std::vector<std::string>& options, const Signals& signals)
    : RunServer(instance), child_(start_gradshmd(options)) {
  try {
    wait_until_ready(signals);
  } catch (...) {
    stop();
    throw;
  }
}

void ServerProcess::wait_until_ready(const Signals& signals) {
  const core::Deadline deadline = core::Deadline::after(kReadyNs);
  while (!deadline.passed()) {
    // The server writes its beacon once it listens. Another server's beacon has another pid.
    const auto beacon = core::read_beacon(geteuid(), instance_);
    if (beacon && beacon->pid == child_.pid) return;
    std::array<pollfd, 2> events{{{child_.pidfd.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
    if (poll(events.data(), events.size(), kLookMs) <= 0) continue;
    if (const auto signal = signals.next(); signal && asks_to_end(*signal)) throw ServerFailed("ended by a signal while the server started", 128 + signal->number);
    if (events[0].revents == 0) continue;
    const auto ending = wait_for(child_, -1);
    ended_ = true;
    throw ServerFailed("the server ended before it was ready: " + describe(ending.value_or(Ending{})), kNoServer);
  }
  throw ServerFailed("the server (pid " + std::to_string(child_.pid) + ") is not ready after 30 s", kNoServer);
}

bool RunServer::waits_for_round_1() const {
  if (ended_) return false;
  try {
    const auto snapshot = core::Watcher(instance_).take();
    return !snapshot || (snapshot->closed_round == 0 && snapshot->opened_ns == 0);
  } catch (const core::Error&) {
    return false;
  }
}

void ServerProcess::note_end() {
  if (ended_) return;
  if (const auto ending = wait_for(child_, 0)) {
    ended_ = true;
    std::fprintf(stderr, "gradshm run: the server (pid %d) ended before its workers: %s\n", child_.pid, describe(*ending).c_str());
    sweep();
  }
}

ServerProcess::~ServerProcess() { stop(); }

void ServerProcess::stop() {
  if (ended_) return;
  ended_ = true;
  kill(child_.pid, SIGTERM);
  kill(child_.pid, SIGCONT);  // it may be stopped
  if (wait_for(child_, kStopMs)) return;
  std::fprintf(stderr, "gradshm run: the server (pid %d) does not end: killing it\n", child_.pid);
  kill(child_.pid, SIGKILL);
  (void)wait_for(child_, -1);
  sweep();
}

// What a killed server leaves: nobody else would ever use its name again.
void ServerProcess::sweep() const {
  try {
    const core::InstanceDirectory abandoned(instance_);  // takes the lock, and so refuses where another server runs; removes what is there
    if (const auto beacon = core::read_beacon(geteuid(), instance_); beacon && beacon->pid == child_.pid) core::remove_beacon(*beacon);
  } catch (const core::Error&) {
    return;
  }
}

}  // namespace gradshm::tools
