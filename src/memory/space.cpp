#include "memory/space.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/status.hpp"
#include "base/text.hpp"

namespace gradshm::core {
namespace {

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

std::uint64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, line; file >> key; std::getline(file, line)) {
    std::uint64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

// Pages of files on disk that the cgroup has read or written: counted as used, but given up before anybody is killed. A worker that
// reads its data from files has filled its limit with them before long. Version 1 has figures with the sub-groups under "total_".
std::uint64_t cached_files(const std::string& directory) {
  std::ifstream file(directory + "memory.stat");
  std::uint64_t own = 0, total = 0, value = 0;
  for (std::string key; file >> key >> value;) {
    if (key == "inactive_file" || key == "active_file") own += value;
    if (key == "total_inactive_file" || key == "total_active_file") total += value;
  }
  return std::max(own, total);
}

// What taking `room` bytes needs besides: page tables (of two mappings) and the file's index, 1 byte in 170, and what the kernel charges ahead.
std::uint64_t without_overhead(std::uint64_t room) {
  const std::uint64_t overhead = room / 128 + (1u << 20);
  return room > overhead ? room - overhead : 0;
}

// Every cgroup from `path` up to the root of the hierarchy limits us.
void add_cgroups(std::vector<Space>& limits, const std::string& root, std::string path, const char* limit_file, const char* usage_file) {
  while (true) {
    const std::string directory = root + path + "/";
    const auto limit = read_number(directory + limit_file), usage = read_number(directory + usage_file);
    if (limit && usage) {
      const std::uint64_t kept = *usage - std::min(*usage, cached_files(directory));
      limits.push_back({without_overhead(*limit > kept ? *limit - kept : 0), "memory cgroup " + (path.empty() ? "/" : path), true});
    }
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::vector<Space> space_limits() {
  std::vector<Space> limits{{mem_available(), "free memory"}};
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    if (!std::getline(fields, number, ':') || !std::getline(fields, controllers, ':') || !std::getline(fields, path)) continue;
    if (path.empty() || path.front() != '/') continue;
    if (path == "/") path.clear();
    if (controllers.empty()) add_cgroups(limits, "/sys/fs/cgroup", path, "memory.max", "memory.current");
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      add_cgroups(limits, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes");
  }
  if (const char* test = std::getenv("GRADSHM_TEST_FREE_BYTES")) limits.push_back({std::strtoull(test, nullptr, 10), "GRADSHM_TEST_FREE_BYTES"});
  return limits;
}

Space free_space(Charged charged) {
  std::vector<Space> limits = space_limits();
  if (charged == Charged::to_several) std::erase_if(limits, [](const Space& limit) { return limit.of_cgroup; });
  return *std::min_element(limits.begin(), limits.end(), [](const Space& a, const Space& b) { return a.bytes < b.bytes; });
}

void require_space(std::uint64_t wanted_bytes, std::uint64_t file_bytes, const std::string& what, Charged charged) {
  const Space space = free_space(charged);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && file_bytes > limit.rlim_cur)
    throw Error(Status::no_space, what + " needs a file of " + format_count(file_bytes) + " bytes, RLIMIT_FSIZE allows " +
                                      format_count(limit.rlim_cur) + ": raise it (ulimit -f)");
  if (wanted_bytes > space.bytes)
    throw Error(Status::no_space, what + " needs " + format_count(wanted_bytes) + " bytes, " + format_count(space.bytes) + " are free (" +
                                      space.limited_by + "): use fewer workers or a smaller layout, or free memory");
}

}  // namespace gradshm::core
