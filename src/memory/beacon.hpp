// The beacon: the one named object of an instance, /dev/shm/gradshm.<uid>.<name>@<hash of the run directory>, for discovery and for reading the state of a dead
// server. Created complete (temporary name, filled, renamed), written with pwrite, read with pread, never mapped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "memory/shared.hpp"

namespace gradshm::core {

// An attached worker, as a new server must know it: whoever is listed and lives is waited for after a restart.
struct ListedWorker {
  std::uint64_t generation = 0;  // 0 = nobody has this rank
  std::uint64_t pid_start = 0;
  std::int32_t pid = 0;          // in the server's pid namespace; 0 = it is in another one
  std::uint32_t takes_part = 0;  // 1: ready or a member; 0: attached only, or paused
};

struct BeaconData {
  ObjectHeader object;
  std::uint64_t sequence = 0;          // grows with every write
  std::uint64_t incarnation = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t pid_start = 0;         // field 22 of /proc/<pid>/stat: tells a re-used pid
  std::uint64_t started_unix_s = 0;    // for people
  std::uint64_t closed_round = 0;      // lazily
  std::uint64_t member_ranks[kRankWords] = {};
  std::uint64_t members = 0;
  std::uint64_t parameters = 0, gradient_bytes = 0;
  std::uint64_t progress_ns = 0;       // CLOCK_MONOTONIC of the last write
  std::uint64_t pid_namespace = 0;     // inode of the server's; pids mean nothing in another one
  ListedWorker listed[kMaxWorkers] = {};  // by rank; at once
  char name[kPageBytes / 32] = {};
  char socket_path[112] = {};
};

// Depends on the run directory: two servers of one name in two directories have two beacons.
[[nodiscard]] std::string beacon_name(uid_t uid, const std::string& instance);

class Beacon {
 public:
  // Replaces what a dead server left under that name. Throws Error.
  Beacon(const std::string& instance, BeaconData data);
  ~Beacon();  // keeps the object: see remove
  Beacon(const Beacon&) = delete;
  Beacon& operator=(const Beacon&) = delete;
  bool update(BeaconData data) noexcept;  // one pwrite; false if it failed
  void remove() noexcept;  // unless it is another server's by now

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t sequence_ = 0;
  std::uint64_t incarnation_ = 0;
};

// nullopt: there is none, or it is damaged or of another version.
[[nodiscard]] std::optional<BeaconData> read_beacon(uid_t uid, const std::string& instance);
[[nodiscard]] std::vector<BeaconData> list_beacons(uid_t uid);  // by name; of all run directories
// Unlinks the beacon if it still is that of the same incarnation. False if not.
bool remove_beacon(const BeaconData& beacon) noexcept;
[[nodiscard]] bool is_alive(const BeaconData& beacon);          // the process that wrote it still runs, or is in another pid namespace
[[nodiscard]] std::uint64_t pid_start_time(pid_t pid);          // 0: no such process, a zombie, or one that /proc hides
[[nodiscard]] bool is_hidden(pid_t pid);                        // it is there, but /proc does not show it to us (hidepid)
[[nodiscard]] std::uint64_t own_pid_namespace();                // 0: unknown

}  // namespace gradshm::core
