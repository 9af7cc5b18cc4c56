#include "doctor_checks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"
#include "cli_beacon.hpp"

namespace gradshm::tools {
namespace {

constexpr std::uint64_t kLeastDescriptors = 10;    // standard ones, lock, epoll, stop event, spare, listener, beacon with its copy
constexpr std::uint64_t kServerDescriptors = 16;   // with layout, control and result, and some to work with
constexpr std::uint64_t kWorkerDescriptors = 4;    // socket, pidfd, doorbell, slot
constexpr std::uint64_t kDefaultWorkers = 64;      // gradshmd --max-workers
constexpr const char* kRaiseDescriptors = "raise it: ulimit -n 1024";
constexpr std::uint64_t kNoLimit = 1ull << 60;     // cgroup v1 writes "none" as a number of this size
constexpr std::uint64_t kProgramBytes = 1u << 30;  // address space of code, stacks and thread pool, generously

std::string joined_with(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::string in_words(const Limit& limit) { return limit ? core::format_count(*limit) : "unlimited"; }

Finding check_kernel(const Facts& facts) {
  int major = 0, minor = 0;
  const bool known = std::sscanf(facts.release.c_str(), "%d.%d", &major, &minor) == 2;
  const bool old = known && (major < 5 || (major == 5 && minor < 4));
  if (old)
    return {Verdict::warn, "kernel", "Linux " + core::escape(facts.release) + " is older than 5.4",
            "what follows was tried all the same; update the kernel if something of it fails"};
  return {Verdict::ok, "kernel", "Linux " + core::escape(facts.release), ""};
}

Finding check_features(const Facts& facts) {
  std::vector<std::string> work, fail;
  for (const Tried& tried : facts.features)
    if (tried.error.empty()) work.push_back(tried.feature);
    else fail.push_back(tried.feature + " (" + tried.error + ")");
  if (fail.empty()) return {Verdict::ok, "features", joined_with(work, ", ") + ": tried, all work", ""};
  const std::string advice = "Linux 5.4 or newer is needed, and a sandbox that lets these calls through" +
                             std::string(facts.seccomp != 0 ? " (a seccomp filter is active: look at the container's profile)" : "");
  return {Verdict::fail, "features", joined_with(fail, "; ") + (fail.size() == 1 ? " does not work" : " do not work"), advice};
}

Finding check_beacon(const Facts& facts) {
  if (facts.beacon_error != 0)
    return {Verdict::fail, "/dev/shm", std::string("a file of a kilobyte cannot be made there: ") + std::strerror(facts.beacon_error),
            "mount a tmpfs at /dev/shm that you may write to, with some free bytes; only the beacon lies there, gradients do not"};
  return {Verdict::ok, "/dev/shm", "may be written, " + core::format_bytes(facts.shm_free_bytes) + " free (gradients do not count against it)", ""};
}

Finding check_layout(const Facts& facts) { return {Verdict::fail, "layout", facts.layout_error, "check it with: gradshm layout check FILE"}; }

Finding check_memory(const Facts& facts) {
  std::vector<std::string> limits;
  const core::Space* tight = nullptr;
  for (const core::Space& space : facts.space) {
    const std::string free = core::format_count(space.bytes) + " are free (" + core::escape(space.limited_by) + ")";
    if (const std::uint64_t need = space.of_cgroup ? facts.need.own : facts.need.total; need > space.bytes)
      return {Verdict::fail, "memory", facts.need.whom + " needs " + core::format_count(need) + (space.of_cgroup ? " bytes for the result, " : " bytes, ") + free,
              "free memory, raise that limit, or use fewer workers or a smaller layout"};
    if (space.bytes < kNoLimit) limits.push_back(core::format_bytes(space.bytes) + " (" + core::escape(space.limited_by) + ")");
    if (facts.need.total > space.bytes) tight = &space;
  }
  if (facts.space.empty()) return {Verdict::warn, "memory", "nothing says how much is free", ""};
  const std::string need = facts.need.whom + " needs " + core::format_count(facts.need.total) + " bytes";
  if (tight != nullptr)
    return {Verdict::warn, "memory", need + ", " + core::format_count(tight->bytes) + " are free (" + core::escape(tight->limited_by) + ")",
            "the result fits; workers must be in other cgroups, or that limit be raised"};
  return {Verdict::ok, "memory", "free: " + joined_with(limits, ", ") + "; " + need, ""};
}

Finding check_file_bytes(const Facts& facts) {
  const std::uint64_t largest = std::max<std::uint64_t>(facts.need.largest_file, sizeof(core::BeaconData));
  const std::string found = "RLIMIT_FSIZE is " + in_words(facts.file_bytes);
  if (!facts.file_bytes || *facts.file_bytes >= largest) return {Verdict::ok, "file size", found, ""};
  return {Verdict::fail, "file size",
          found + ", " + facts.need.whom + " has an object of " + core::format_count(largest) + " bytes",
          "raise it: ulimit -f unlimited"};
}

Finding check_descriptors(const Facts& facts) {
  const std::string found = "RLIMIT_NOFILE is " + in_words(facts.descriptors);
  const std::uint64_t limit = facts.descriptors.value_or(UINT64_MAX);
  if (limit < kLeastDescriptors)
    return {Verdict::fail, "descriptors", found + ", the server needs " + std::to_string(kLeastDescriptors) + " before any worker comes", kRaiseDescriptors};
  if (limit >= kServerDescriptors + kDefaultWorkers * kWorkerDescriptors) return {Verdict::ok, "descriptors", found, ""};
  const std::uint64_t workers = limit > kServerDescriptors ? (limit - kServerDescriptors) / kWorkerDescriptors : 0;
  return {Verdict::warn, "descriptors",
          found + ", enough for about " + core::plural(workers, "worker") + " (" + std::to_string(kWorkerDescriptors) + " each)", kRaiseDescriptors};
}

Finding check_address_space(const Facts& facts) {
  const std::string found = "RLIMIT_AS is " + in_words(facts.address_space);
  const std::uint64_t wanted = facts.need.total > UINT64_MAX - kProgramBytes ? UINT64_MAX : facts.need.total + kProgramBytes;
  if (!facts.address_space || *facts.address_space >= wanted) return {Verdict::ok, "address space", found, ""};
  return {Verdict::warn, "address space", found + ", " + facts.need.whom + " may need " + core::format_count(wanted), "raise it: ulimit -v unlimited"};
}

// By the rules of memory/rundir.cpp.
Finding judge_directory(const std::string& check, const DirectoryFacts& facts, unsigned uid) {
  const std::string path = core::escape(facts.path), elsewhere = "set GRADSHM_DIR to a directory of your own";
  const auto fail = [&](const std::string& found, const std::string& advice) { return Finding{Verdict::fail, check, found, advice}; };
  if (!facts.exists && facts.write_error != 0)
    return fail(path + " cannot be made: " + std::strerror(facts.write_error), "make the directory above it writable for you, or " + elsewhere);
  if (!facts.exists) return {Verdict::ok, check, path + " is not there; the server makes it", ""};
  if (facts.is_link) return fail(path + " is a symbolic link", elsewhere);
  if (!facts.is_directory) return fail(path + " is no directory", elsewhere);
  if (facts.owner != uid) return fail(path + " belongs to uid " + std::to_string(facts.owner) + ", you are uid " + std::to_string(uid), elsewhere);
  if ((facts.mode & 022) != 0) return fail(path + " may be written by others", "chmod go-w " + path + ", or " + elsewhere);
  if (facts.write_error != 0) return fail(path + " cannot be written: " + std::strerror(facts.write_error), "chmod u+wx " + path + ", or " + elsewhere);
  return {Verdict::ok, check, path + " is yours alone", ""};
}

Finding check_socket(const Facts& facts) {
  if (!facts.socket_error.empty()) return {Verdict::fail, "socket path", core::escape(facts.socket_error), "set GRADSHM_DIR to a shorter directory"};
  return {Verdict::ok, "socket path", core::escape(facts.socket_path) + " (" + std::to_string(facts.socket_path.size()) + " of at most 107 bytes)", ""};
}

Finding check_instances(const Facts& facts) {
  std::vector<std::string> living, dead;
  bool same = false;
  for (const core::BeaconData& beacon : facts.living) {
    living.push_back("'" + core::escape(text_of(beacon.name)) + "' (pid " + std::to_string(beacon.pid) + ")");
    same |= text_of(beacon.socket_path) == facts.socket_path;
  }
  for (const core::BeaconData& beacon : facts.dead) dead.push_back("'" + core::escape(text_of(beacon.name)) + "'");
  std::string found = living.empty() ? "none runs" : joined_with(living, ", ") + (living.size() == 1 ? " runs" : " run");
  if (!dead.empty()) found += "; dead: " + joined_with(dead, ", ");
  if (same) return {Verdict::warn, "instances", found, "a second server '" + facts.instance + "' would be refused: use that one, stop it, or choose another --name"};
  if (!dead.empty())
    return {Verdict::warn, "instances", found, "restart a dead one under its name with the same --op and other options (gradshmd --name NAME --op ...), or remove what it left: gradshm ls --clean"};
  return {Verdict::ok, "instances", found, ""};
}

Finding check_cpus(const Facts& facts) {
  const std::string found = "may run on " + std::to_string(facts.cpus) + " of " + core::plural(facts.cpus_online, "CPU") + ", " +
                            core::plural(facts.numa_nodes, "NUMA node");
  if (facts.cpus == 1) return {Verdict::warn, "CPUs", found, "server and workers share one CPU: nobody can spin, and rounds take context switches"};
  return {Verdict::ok, "CPUs", found, ""};
}

Finding check_simd(const Facts& facts) {
  if (facts.simd_targets.empty()) return {Verdict::warn, "SIMD", "no target of this build fits this CPU", ""};
  return {Verdict::ok, "SIMD", "sums use " + facts.simd_targets.front() + " (this build and this CPU share " + joined_with(facts.simd_targets, ", ") + ")", ""};
}

Finding check_huge_pages(const Facts& facts) {
  if (facts.huge_pages.empty()) return {Verdict::ok, "huge pages", "this kernel has no transparent ones: pages have 4 KiB", ""};
  const bool in_use = facts.shmem_huge_pages.find("[always]") != std::string::npos || facts.shmem_huge_pages.find("[within_size]") != std::string::npos ||
                      facts.shmem_huge_pages.find("[force]") != std::string::npos;
  return {Verdict::ok, "huge pages",
          "enabled: " + core::escape(facts.huge_pages) + "; for shared memory: " + core::escape(facts.shmem_huge_pages) + (in_use ? "" : ", so slots have pages of 4 KiB"), ""};
}

Finding check_isolation(const Facts& facts) {
  std::string found = facts.container_marks.empty() ? "no sign of a container" : "in a container (" + joined_with(facts.container_marks, ", ") + ")";
  found += facts.initial_pid_namespace ? ", in the initial pid namespace" : ", in a pid namespace of its own";
  if (facts.pid_namespace_depth > 1) found += " (" + std::to_string(facts.pid_namespace_depth) + " deep)";
  if (facts.initial_pid_namespace) return {Verdict::ok, "isolation", found, ""};
  return {Verdict::ok, "isolation",
          found + ": workers outside it share " + core::escape(facts.run_directory.path) +
              " by a bind mount, and are shown with pid 0; gradshm ls sees this container's instances only", ""};
}

Finding check_sandbox(const Facts& facts) {
  const std::string yama = facts.yama_scope ? "Yama ptrace_scope " + std::to_string(*facts.yama_scope) : "no Yama";
  const std::string seccomp = facts.seccomp == 0 ? "no seccomp filter" : "a seccomp filter is active";
  return {Verdict::ok, "sandbox", seccomp + ", " + yama + " (gradshm traces nobody: pidfds come over the socket)", ""};
}

Finding check_locked(const Facts& facts) { return {Verdict::ok, "locked memory", "RLIMIT_MEMLOCK is " + in_words(facts.locked_bytes) + "; gradshm locks none", ""}; }

Finding check_user(const Facts& facts) {
  return {Verdict::ok, "user", "uid " + std::to_string(facts.uid) + ", gid " + std::to_string(facts.gid) + ": workers must have the same uid, or be root", ""};
}

Finding check_gpu(const Facts& facts) {
  return {Verdict::ok, "GPU",
          std::string("this build has no GPU code, sums are made on the host; libcuda.so.1 is ") + (facts.cuda_driver ? "there" : "not there"), ""};
}

}  // namespace

const char* to_string(Verdict verdict) { return verdict == Verdict::ok ? "OK" : verdict == Verdict::warn ? "WARN" : "FAIL"; }

std::vector<Finding> examine(const Facts& facts) {
  std::vector<Finding> findings{check_kernel(facts), check_features(facts), check_beacon(facts)};
  if (!facts.layout_error.empty()) findings.push_back(check_layout(facts));
  findings.insert(findings.end(), {check_memory(facts), check_file_bytes(facts), check_descriptors(facts), check_address_space(facts), check_locked(facts)});
  findings.push_back(judge_directory("run directory", facts.run_directory, facts.uid));
  // Below a directory that is not there, or not good, there is nothing to judge.
  if (facts.run_directory.exists && findings.back().verdict == Verdict::ok) findings.push_back(judge_directory("instance", facts.instance_directory, facts.uid));
  findings.insert(findings.end(), {check_socket(facts), check_instances(facts), check_cpus(facts), check_simd(facts), check_huge_pages(facts),
                                   check_isolation(facts), check_sandbox(facts), check_user(facts), check_gpu(facts)});
  return findings;
}

bool would_start(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.verdict == Verdict::fail; });
}

}  // namespace gradshm::tools
