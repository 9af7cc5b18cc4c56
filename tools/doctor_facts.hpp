// What gradshm doctor looks at: plain values, gathered here and judged in doctor_checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/beacon.hpp"
#include "memory/space.hpp"

namespace gradshm::tools {

// A feature that was tried for real.
struct Tried {
  std::string feature;
  std::string error;  // empty = it works
};

struct DirectoryFacts {
  std::string path;
  bool exists = false, is_directory = false, is_link = false;
  unsigned owner = 0, mode = 0;
  int write_error = 0;  // errno: we may not make files in it, or where it does not exist, not make it
};

// Bytes that the server and its expected workers take.
struct Need {
  std::string whom;  // "the smallest layout", "model.tsv with 4 workers"
  std::uint64_t total = 0, largest_file = 0;
  std::uint64_t own = 0;  // of total, what the server itself takes
};

using Limit = std::optional<std::uint64_t>;  // none = unlimited

struct Facts {
  std::string instance, release;
  unsigned uid = 0, gid = 0;
  std::vector<Tried> features;
  int beacon_error = 0;  // errno of making a file in /dev/shm
  std::uint64_t shm_free_bytes = 0;
  std::vector<core::Space> space;
  Need need;
  std::string layout_error;  // of --layout
  Limit file_bytes, descriptors, address_space, locked_bytes;
  DirectoryFacts run_directory, instance_directory;
  std::string socket_path, socket_error;
  std::string huge_pages, shmem_huge_pages;  // as the kernel lists them, "always [madvise] never"; empty = not there
  std::vector<std::string> simd_targets;
  unsigned cpus = 0, cpus_online = 0, numa_nodes = 0;
  bool initial_pid_namespace = true;
  unsigned pid_namespace_depth = 1;
  std::vector<std::string> container_marks;
  int seccomp = 0;      // 0 off, 1 strict, 2 filter
  std::optional<int> yama_scope;
  bool cuda_driver = false;
  std::vector<core::BeaconData> living, dead;  // instances of this user
};

struct Question {
  std::string instance, layout_path;  // layout_path empty: the smallest layout there is
  unsigned expect = 1;
};

// Throws core::Error(invalid) on a bad instance name.
[[nodiscard]] Facts gather(const Question& question);

// The features of the kernel that gradshm stands on, each used once as gradshm uses it. Leaves nothing behind.
[[nodiscard]] std::vector<Tried> try_features();

}  // namespace gradshm::tools
