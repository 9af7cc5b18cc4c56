#include "support/harness.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gradshm::test {
namespace {

void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Starts a program with both streams into a file.
pid_t start(const std::string& path, const std::vector<std::string>& arguments, const std::string& output) {
  std::vector<char*> raw{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(fd, 1), dup2(fd, 2);
  execv(path.c_str(), raw.data());
  _exit(127);
}

int decode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

std::atomic<int> living_directories{0};

// Servers that were killed leave theirs. The directory's path is in it, and nobody else's has that.
void remove_beacons_of(const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error))
    if (entry.path().filename().string().starts_with("gradshm.") && read_file(entry.path()).find(directory + "/") != std::string::npos) found.push_back(entry.path());
  for (const auto& path : found) std::filesystem::remove(path, error);
}

}  // namespace

RunDirectory::RunDirectory() {
  std::string pattern = "/tmp/gradshm-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
  if (living_directories++ == 0) setenv("GRADSHM_DIR", path_.c_str(), 1);
  else path_ = std::getenv("GRADSHM_DIR"), std::filesystem::remove(pattern);  // several servers of one test share the first directory
}

RunDirectory::~RunDirectory() {
  if (--living_directories != 0) return;
  const std::string shared = std::getenv("GRADSHM_DIR");
  unsetenv("GRADSHM_DIR");
  std::error_code error;
  std::filesystem::remove_all(shared, error);
  remove_beacons_of(shared);
}

std::string fresh_name() {
  static std::atomic<int> next{0};
  return "t" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

ServerThread::ServerThread(gradshm_server_options_t options) : name_(options.name != nullptr ? options.name : fresh_name()) {
  options.size = sizeof options;
  options.name = name_.c_str();
#if defined(__SANITIZE_THREAD__)
  options.reducer_threads = 1;  // Debian's oneTBB is not instrumented: TSan reports each of its tasks. With one thread the server sums by itself.
#endif
  if (gradshm_server_create(&options, &server_) != GRADSHM_OK) throw std::runtime_error(gradshm_server_last_error());
  thread_ = std::thread([this] { gradshm_server_run(server_); });
}

void ServerThread::stop() {
  if (server_ == nullptr) return;
  gradshm_server_stop(server_);
  thread_.join();
  gradshm_server_destroy(server_);
  server_ = nullptr;
}

ServerThread::~ServerThread() {
  if (server_ != nullptr) gradshm_server_stop(server_);  // twice: tests that end early do not drain
  stop();
}

std::string build_path(const std::string& program) {
  const char* build = std::getenv("GRADSHM_BUILD");
  if (build == nullptr) throw std::runtime_error("GRADSHM_BUILD is not set: tests are run by tools/test or meson test");
  return std::string(build) + "/" + program;
}

DaemonProcess::DaemonProcess(std::vector<std::string> options) : name_(fresh_name()), log_path_(directory_.path() + "/" + name_ + ".log") {
  start_program(std::move(options));
}

void DaemonProcess::start_program(std::vector<std::string> options) {
  options.insert(options.begin(), {"--name", name_});
  const std::size_t before = log().size();
  pid_ = start(build_path("tools/gradshmd"), options, log_path_);
  const auto is_ready = [&] { return log().find("ready: ", before) != std::string::npos; };
  int status = 0;
  bool ended = false;
  if (eventually([&] { return is_ready() || (ended = waitpid(pid_, &status, WNOHANG) == pid_); }) && is_ready()) return;
  if (ended) pid_ = -1;
  throw std::runtime_error("gradshmd did not get ready: " + log());
}

void DaemonProcess::kill() {
  signal(SIGKILL);
  wait();
}

void DaemonProcess::restart(std::vector<std::string> options) {
  if (pid_ > 0) kill();
  start_program(std::move(options));
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0) ::kill(pid_, SIGTERM), ::kill(pid_, SIGCONT), ::kill(pid_, SIGINT), wait();
}

void DaemonProcess::signal(int number) { ::kill(pid_, number); }

int DaemonProcess::wait() {
  const int status = reap(pid_);
  pid_ = -1;
  return status;
}

std::string DaemonProcess::log() const { return read_file(log_path_); }

Child::Child(const std::function<int()>& body) {
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 99;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Child::~Child() {
  if (pid_ > 0) kill(SIGKILL), kill(SIGCONT), wait();
}

void Child::kill(int number) { ::kill(pid_, number); }

int Child::wait() {
  const int status = reap(pid_);
  pid_ = -1;
  return decode(status);
}

Board::Board() : memory(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
Board::~Board() { munmap(memory, 4096); }

// order: seq_cst, tests are not the place to be clever.
void Board::set(std::size_t index, long value) { std::atomic_ref(static_cast<long*>(memory)[index]).store(value); }
long Board::get(std::size_t index) const { return std::atomic_ref(static_cast<long*>(memory)[index]).load(); }
void Board::wait_for(std::size_t index, long at_least) const {
  while (get(index) < at_least) pause_briefly();
}

bool eventually(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    pause_briefly();
  }
  return true;
}

Output run_program(const std::string& program, const std::vector<std::string>& arguments) {
  static std::atomic<int> next{0};
  const std::string path = "/tmp/gradshm-test-out-" + std::to_string(getpid()) + "-" + std::to_string(next++);
  Output output;
  output.code = decode(reap(start(build_path(program), arguments, path)));
  output.text = read_file(path);
  std::filesystem::remove(path);
  return output;
}

}  // namespace gradshm::test
