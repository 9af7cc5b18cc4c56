#include "cli_server.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
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
constexpr std::string_view kRejoin = "--rejoin-timeout=";

// As a shell reads it back.
std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

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
    : RunServer(instance), options_(options), child_(start_gradshmd(options)) {
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
    ended_ = true, killed_ = ending && ending->signal != 0;
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
    ended_ = true, killed_ = ending->signal != 0;
    std::fprintf(stderr, "gradshm run: the server (pid %d) ended before its workers: %s\n", child_.pid, describe(*ending).c_str());
    if (killed_) advise();
    else sweep();
  }
}

// The command has what the server was started with, but for its log level.
void ServerProcess::advise() const {
  std::string command = core::run_directory_is_chosen() ? "GRADSHM_DIR=" + shell_word(core::run_directory()) + " " : "";
  command += shell_word(find_gradshmd());
  std::string seconds = "30";  // gradshmd's default
  for (const std::string& option : options_) {
    if (option.starts_with(kRejoin)) seconds = option.substr(kRejoin.size());
    if (!option.starts_with("--log-level=")) command += " " + shell_word(option);
  }
  if (std::strtod(seconds.c_str(), nullptr) > 0)
    std::fprintf(stderr, "gradshm run: the workers look for a new one for %s s; this starts it: %s\n", seconds.c_str(), command.c_str());
}

ServerProcess::~ServerProcess() { stop(); }

void ServerProcess::stop() {
  if (killed_) sweep();
  if (ended_) return;
  ended_ = true;
  kill(child_.pid, SIGTERM);
  kill(child_.pid, SIGCONT);  // it may be stopped
  if (const auto ending = wait_for(child_, kStopMs)) {
    if (ending->signal != 0) sweep();  // it was killed when we were about to ask
    return;
  }
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
