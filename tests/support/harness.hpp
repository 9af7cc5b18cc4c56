// Servers and worker processes for tests. Every object cleans up what it made; a hang is ended by the runner's watchdog.
#pragma once

#include <gradshm/gradshm.hpp>
#include <gradshm/server.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace gradshm::test {

// A private GRADSHM_DIR for as long as it lives; the environment is put back afterwards, and the beacons of servers that were killed in
// it are removed.
class RunDirectory {
 public:
  RunDirectory();
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// A server in a thread of this process (libgradshm-server). Name and options as given; name NULL becomes a fresh one.
class ServerThread {
 public:
  explicit ServerThread(gradshm_server_options_t options = {});
  ~ServerThread();
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  void stop();  // returns when it has ended

 private:
  RunDirectory directory_;
  std::string name_;
  gradshm_server_t* server_ = nullptr;
  std::thread thread_;
};

// The real gradshmd (its path comes from the environment variable GRADSHM_BUILD) as a child process, ready when the constructor
// returns. `--name` is added. Throws std::runtime_error with what it printed if it does not get ready.
class DaemonProcess {
 public:
  explicit DaemonProcess(std::vector<std::string> options = {});
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number);
  int wait();  // exit status as of waitpid
  void kill();  // -9, and returns when it is gone
  void restart(std::vector<std::string> options = {});  // under the same name; the log goes on
  [[nodiscard]] std::string log() const;

 private:
  void start_program(std::vector<std::string> options);
  RunDirectory directory_;
  std::string name_, log_path_;
  pid_t pid_ = -1;
};

// A forked child that runs `body` and exits with what it returns; 99 if it throws (the sentence goes to stderr). No doctest assertion may be
// used inside: return a code instead.
class Child {
 public:
  explicit Child(const std::function<int()>& body);
  ~Child();  // kills it if it still runs
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill(int number = 9);
  int wait();  // exit code, or 128 + signal

 private:
  pid_t pid_ = -1;
};

// A few words of memory shared with forked children, for telling each other things.
struct Board {
  Board();
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  void set(std::size_t index, long value);
  [[nodiscard]] long get(std::size_t index) const;
  void wait_for(std::size_t index, long at_least) const;
  void* memory = nullptr;
};

[[nodiscard]] std::string fresh_name();
// Polls until true. False after 60 s, which is a hang and no speed limit.
bool eventually(const std::function<bool()>& condition);
// Runs a program of the build directory ("tools/gradshm"), returns its exit code and what it printed on both streams.
struct Output {
  int code = -1;
  std::string text;
};
Output run_program(const std::string& program, const std::vector<std::string>& arguments);
[[nodiscard]] std::string build_path(const std::string& program);

}  // namespace gradshm::test
