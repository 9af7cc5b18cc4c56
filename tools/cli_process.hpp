// Child processes that end with us, and how they ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace gradshm::tools {

struct Command {
  std::vector<std::string> arguments;    // the first is the program, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", beside ours
  bool own_input = false;                // reads our stdin; else /dev/null
  bool own_group = false;                // in a process group of its own: a terminal's ^C does not reach it
  std::optional<int> cpu;                // runs there only
};

struct Child {
  pid_t pid = 0;
  core::UniqueFd pidfd;
};

// Gets SIGTERM when this process ends, however it ends. Throws std::system_error(errno, program) if it cannot be executed. For the
// thread that ends with the process only.
[[nodiscard]] Child start(const Command& command);

struct Ending {
  int code = 0;    // exit code, or 128 + signal
  int signal = 0;  // 0 = it exited by itself
};

// nullopt: it still runs (timeout_ms: -1 waits, 0 asks). Reaps it, so once it has ended do not ask again.
[[nodiscard]] std::optional<Ending> wait_for(const Child& child, int timeout_ms);

// "exit code 3", "killed by signal 9 (SIGKILL)"
[[nodiscard]] std::string describe(const Ending& ending);

// The CPUs that this process may run on.
[[nodiscard]] std::vector<int> allowed_cpus();

}  // namespace gradshm::tools
