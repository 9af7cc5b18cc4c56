#include "processes.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "base/clock.hpp"

namespace gradshm::bench {
namespace {

constexpr std::int64_t kReadyTimeout_ns = 30'000'000'000;
constexpr std::int64_t kDrainPatience_ns = 10'000'000'000;
constexpr useconds_t kPollPause_us = 2'000;

[[noreturn]] void throw_errno(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

[[noreturn]] void become_child(pid_t parent, int end_signal, const std::function<int()>& body) {
  for (const int number : {SIGINT, SIGTERM}) signal(number, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, end_signal);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // killed before the line above
  _exit(body());                                 // the parent's objects are not ours to destroy
}

std::string program_path(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code none;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& candidate : {here / "../tools/gradshmd", here / "gradshmd"}) {
    if (std::filesystem::exists(candidate, none)) return candidate;
  }
  return "gradshmd";
}

int run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& log) {
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0) return EXIT_FAILURE;
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(program.c_str(), argv.data());
  dprintf(STDERR_FILENO, "cannot run '%s': %s (build it, or name one with --daemon)\n", program.c_str(), strerror(errno));
  return 127;
}

}  // namespace

Child::Child(std::string name, int end_signal, const std::function<int()>& body) {
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) become_child(parent, end_signal, body);
  name_ = std::move(name) + " (pid " + std::to_string(pid_) + ")";
}

bool Child::has_ended() noexcept {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_.has_value();
}

std::optional<std::string> Child::how_it_ended() {
  if (!has_ended()) return std::nullopt;
  if (!WIFSIGNALED(*status_)) return name_ + " ended with exit code " + std::to_string(WEXITSTATUS(*status_));
  return name_ + " was killed by signal " + std::to_string(WTERMSIG(*status_)) + " (" + strsignal(WTERMSIG(*status_)) + ")";
}

void Child::terminate(std::int64_t patience_ns) noexcept {
  if (!has_ended()) kill(pid_, SIGTERM);
  const auto deadline = core::Deadline::after(patience_ns);
  while (!has_ended() && !deadline.passed()) usleep(kPollPause_us);
  kill_now();
}

void Child::kill_now() noexcept {
  if (status_) return;
  kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  status_ = status;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = std::filesystem::temp_directory_path() / "gradshm-bench-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw_errno("mkdtemp " + name);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Daemon::Daemon(const std::string& program, const std::vector<std::string>& arguments)
    : instance_("bench-" + std::to_string(getpid())), beacon_start_("gradshm." + std::to_string(geteuid()) + "." + instance_ + "@") {
  setenv("GRADSHM_DIR", directory_.path().c_str(), 1);  // for the daemon and, being inherited, the workers
  std::vector<std::string> all{"--name", instance_};
  all.insert(all.end(), arguments.begin(), arguments.end());
  child_.emplace("gradshmd", SIGTERM,
                 [&] { return run_program(program_path(program), all, directory_.path() / "daemon.log"); });
  try {
    wait_ready();
  } catch (...) {
    end();
    throw;
  }
}

void Daemon::end() noexcept {
  child_->terminate(kDrainPatience_ns);
  // Where it had to be killed, its beacon is left.
  if (const auto beacon = find_beacon()) unlink(beacon->c_str());
}

std::string Daemon::log() const {
  std::ifstream file(directory_.path() / "daemon.log");
  return {std::istreambuf_iterator<char>(file), {}};
}

// A server makes its beacon once it listens. The name ends with a hash of the run directory.
std::optional<std::filesystem::path> Daemon::find_beacon() const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error))
    if (entry.path().filename().string().starts_with(beacon_start_)) return entry.path();
  return std::nullopt;
}

void Daemon::wait_ready() {
  const auto deadline = core::Deadline::after(kReadyTimeout_ns);
  while (!find_beacon()) {
    if (const auto ended = how_it_ended()) throw std::runtime_error(*ended + " before it was ready; it said:\n" + log());
    if (deadline.passed()) throw std::runtime_error("gradshmd is not ready after 30 s; it said:\n" + log());
    usleep(kPollPause_us);
  }
}

}  // namespace gradshm::bench
