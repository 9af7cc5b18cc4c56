#include "cli_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>

namespace gradshm::tools {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::system_category(), what); }

// The new entries go before ours, and ours of the same name are left out: getenv of some libraries takes the last one.
std::vector<std::string> merged_environment(const std::vector<std::string>& added) {
  std::vector<std::string> merged = added;
  const auto is_replaced = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    for (const std::string& one : added)
      if (one.starts_with(name)) return true;
    return false;
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_replaced(*entry)) merged.emplace_back(*entry);
  return merged;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));  // exec's signature; it writes nothing
  pointers.push_back(nullptr);
  return pointers;
}

void set_up_child(const Command& command, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before prctl
  if (command.own_group) setpgid(0, 0);
  if (command.cpu) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<std::size_t>(*command.cpu), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
  }
  if (!command.own_input) {
    const int null = open("/dev/null", O_RDONLY);
    if (null > STDIN_FILENO) dup2(null, STDIN_FILENO), close(null);
  }
  std::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// After the fork of a process that may have threads: nothing here takes memory.
[[noreturn]] void run_child(const Command& command, pid_t parent, int report, char* const* arguments, char* const* environment) {
  set_up_child(command, parent);
  execvpe(command.arguments.front().c_str(), arguments, environment);
  const int error = errno;
  (void)!write(report, &error, sizeof error);
  _exit(127);
}

}  // namespace

Child start(const Command& command) {
  int report[2] = {-1, -1};
  if (pipe2(report, O_CLOEXEC) != 0) fail("pipe");
  const core::UniqueFd read_end(report[0]);
  core::UniqueFd write_end(report[1]);
  const std::vector<std::string> environment = merged_environment(command.environment);
  const std::vector<char*> argument_pointers = pointers_to(command.arguments), environment_pointers = pointers_to(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid == 0) run_child(command, parent, write_end.get(), argument_pointers.data(), environment_pointers.data());
  Child child{pid, core::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))};
  const int pidfd_error = errno;
  write_end.reset();
  int error = 0;
  while (read(read_end.get(), &error, sizeof error) < 0 && errno == EINTR) {}
  if (error == 0 && child.pidfd) return child;
  if (error == 0) kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  errno = error != 0 ? error : pidfd_error;
  fail(error != 0 ? command.arguments.front() : "pidfd_open");
}

std::optional<Ending> wait_for(const Child& child, int timeout_ms) {
  pollfd ended{child.pidfd.get(), POLLIN, 0};
  if (poll(&ended, 1, timeout_ms) <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(child.pid, &status, 0) != child.pid) fail("waitpid");
  if (WIFSIGNALED(status)) return Ending{128 + WTERMSIG(status), WTERMSIG(status)};
  return Ending{WEXITSTATUS(status), 0};
}

std::string describe(const Ending& ending) {
  if (ending.signal == 0) return "exit code " + std::to_string(ending.code);
  const char* name = sigabbrev_np(ending.signal);
  return "killed by signal " + std::to_string(ending.signal) + (name == nullptr ? "" : " (SIG" + std::string(name) + ")");
}

std::vector<int> allowed_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) fail("sched_getaffinity");
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &cpus)) allowed.push_back(cpu);
  return allowed;
}

}  // namespace gradshm::tools
