// How much memory this process could still take: asked before any is taken, because a cgroup answers an excess with SIGKILL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradshm::core {

struct Space {
  std::uint64_t bytes = 0;
  std::string limited_by;  // "free memory", "cgroup /a/b", "RLIMIT_FSIZE", ...
};

// MemAvailable, and (limit - usage) of every memory cgroup above this process (v1 and v2) that has a limit. Tests add one through
// GRADSHM_TEST_FREE_BYTES.
[[nodiscard]] std::vector<Space> space_limits();
// The smallest of them.
[[nodiscard]] Space free_space();

// Throws Error(no_space) naming bytes wanted and free and what limits them. `file_bytes`: of the largest single file, against
// RLIMIT_FSIZE; `map_bytes`: address space, against RLIMIT_AS.
void require_space(std::uint64_t wanted_bytes, std::uint64_t file_bytes, const std::string& what);

}  // namespace gradshm::core
