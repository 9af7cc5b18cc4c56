#include "cli_signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace gradshm::tools {

namespace {
bool is_ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}
}  // namespace

Signals::Signals() {
  std::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, children could not be waited for
  std::signal(SIGPIPE, SIG_IGN);  // a reader of our messages who goes away must not take server and workers with him
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    if (number != SIGHUP || !is_ignored(SIGHUP)) sigaddset(&signals, number);  // ignored: nohup, which is to be respected
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  fd_.reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw std::system_error(errno, std::system_category(), "signalfd");
}

std::optional<Signal> Signals::next() const {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return Signal{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

bool asks_to_end(const Signal& signal) noexcept { return signal.number == SIGINT || signal.number == SIGTERM || signal.number == SIGHUP; }

}  // namespace gradshm::tools
