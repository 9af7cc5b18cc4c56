// Processes that end with the benchmark, whatever ends it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gradshm::bench {

class Child {
 public:
  // Forks; the child runs `body` and ends with what it returns. It gets `end_signal` when the benchmark itself is killed.
  Child(std::string name, int end_signal, const std::function<int()>& body);
  ~Child() { kill_now(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // "worker 2 (pid 4711) was killed by signal 9 (Killed)"; nullopt: it runs.
  [[nodiscard]] std::optional<std::string> how_it_ended();
  // Asks it to end and waits, then kills it.
  void terminate(std::int64_t patience_ns) noexcept;

 private:
  [[nodiscard]] bool has_ended() noexcept;
  void kill_now() noexcept;

  std::string name_;
  pid_t pid_ = 0;
  std::optional<int> status_;  // as waitpid has it
};

// A fresh directory that goes with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

// A gradshmd of its own, in a directory of its own.
class Daemon {
 public:
  // program: empty = the one built or installed with this benchmark, else from PATH. Returns when it is ready; throws with its log.
  Daemon(const std::string& program, const std::vector<std::string>& arguments);
  ~Daemon() { end(); }

  [[nodiscard]] const std::string& instance() const noexcept { return instance_; }
  [[nodiscard]] std::optional<std::string> how_it_ended() { return child_->how_it_ended(); }
  [[nodiscard]] std::string log() const;

 private:
  [[nodiscard]] std::optional<std::filesystem::path> find_beacon() const;
  void wait_ready();
  void end() noexcept;

  TemporaryDirectory directory_;
  std::string instance_;
  std::string beacon_start_;
  std::optional<Child> child_;
};

}  // namespace gradshm::bench
