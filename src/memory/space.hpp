// How much memory this process could still take: asked before any is taken, because a cgroup answers an excess with SIGKILL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradshm::core {

struct Space {
  std::uint64_t bytes = 0;
  std::string limited_by;  // "free memory", "memory cgroup /a/b", "GRADSHM_TEST_FREE_BYTES"
  bool of_cgroup = false;  // limits what is charged to this process, and to others only if they are in that cgroup too
};

// To whom the memory in question will be charged. Workers take their slots, which may be in other cgroups than the server.
enum class Charged { to_us, to_several };

// MemAvailable, and what every memory cgroup above this process (v1 and v2) that has a limit still takes, its cached files given up and
// the kernel's own needs put aside. Tests add one through GRADSHM_TEST_FREE_BYTES.
[[nodiscard]] std::vector<Space> space_limits();
// The smallest of them; with `to_several` without cgroups.
[[nodiscard]] Space free_space(Charged charged = Charged::to_us);

// Throws Error(no_space) naming bytes wanted and free and what limits them. `file_bytes`: of the largest single file, against
// RLIMIT_FSIZE.
void require_space(std::uint64_t wanted_bytes, std::uint64_t file_bytes, const std::string& what, Charged charged = Charged::to_us);

}  // namespace gradshm::core
