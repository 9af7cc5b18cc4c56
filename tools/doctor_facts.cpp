#include "doctor_facts.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/checked.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "layout/layout.hpp"
#include "memory/control.hpp"
#include "memory/result.hpp"
#include "memory/rundir.hpp"
#include "memory/slot.hpp"
#include "reduce/reduce.hpp"

namespace gradshm::tools {
namespace {

constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO: the kernel numbers the first one so

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What stands behind `key` in /proc/self/status.
std::string own_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return line.substr(key.size() + 1);
  return "";
}

Limit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

DirectoryFacts look_at(const std::string& path) {
  DirectoryFacts facts;
  facts.path = path;
  struct stat info {};
  facts.exists = lstat(path.c_str(), &info) == 0;
  facts.is_directory = S_ISDIR(info.st_mode), facts.is_link = S_ISLNK(info.st_mode);
  facts.owner = info.st_uid, facts.mode = info.st_mode & 07777;
  const std::string where = facts.exists ? path : std::filesystem::path(path).parent_path().string();
  facts.write_error = faccessat(AT_FDCWD, where.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
  return facts;
}

// As the server makes its beacon.
int try_beacon() {
  const std::string name = "/gradshm-doctor." + std::to_string(getpid());
  const core::UniqueFd fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return errno;
  const core::BeaconData data;
  const bool written = ftruncate(fd.get(), sizeof data) == 0 && pwrite(fd.get(), &data, sizeof data, 0) == static_cast<ssize_t>(sizeof data);
  const int error = written ? 0 : errno;
  shm_unlink(name.c_str());
  return error;
}

core::Layout smallest_layout() {
  core::Parameter parameter;
  parameter.name = "smallest", parameter.shape = {1};
  core::Manifest manifest;
  manifest.add(parameter);
  return {std::move(manifest), {}};
}

// The sum that daemon/arena.cpp checks for space.
Need need_of(const core::Layout& layout, const Question& question) {
  const std::uint64_t slot = core::slot_shape(layout).total, result = core::result_bytes(layout);
  const std::uint64_t control = core::control_shape(layout.buckets().size(), layout.groups().size()).total;
  const auto slots = core::checked_mul(slot, question.expect);
  const auto total = slots ? core::checked_add(*slots, result + control) : std::nullopt;
  const std::string layout_name = question.layout_path.empty() ? "the smallest layout" : core::escape(question.layout_path);
  return {layout_name + " with " + core::plural(question.expect, "worker"), total.value_or(UINT64_MAX), std::max({slot, result, control}), result + control};
}

void gather_need(const Question& question, Facts& facts) {
  try {
    const auto load = [&] { return core::Layout(core::load_manifest(question.layout_path), core::LayoutOptions{}); };
    facts.need = need_of(question.layout_path.empty() ? smallest_layout() : load(), question);
  } catch (const core::Error& error) {
    facts.layout_error = error.what();
    facts.need = need_of(smallest_layout(), {question.instance, "", question.expect});
  }
}

void gather_places(const std::string& instance, Facts& facts) {
  const std::string directory = core::run_directory();
  facts.run_directory = look_at(directory);
  facts.instance_directory = look_at(directory + "/" + instance);
  facts.socket_path = directory + "/" + instance + "/sock";
  try {
    static_cast<void>(core::socket_path(instance));
  } catch (const core::Error& error) {
    facts.socket_error = error.what();
  }
  facts.beacon_error = try_beacon();
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) facts.shm_free_bytes = static_cast<std::uint64_t>(shm.f_bavail) * shm.f_frsize;
}

void gather_machine(Facts& facts) {
  facts.simd_targets = core::simd_targets();
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) facts.cpus = static_cast<unsigned>(CPU_COUNT(&cpus));
  facts.cpus_online = static_cast<unsigned>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 0L));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > 4 && name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos) ++facts.numa_nodes;
  }
  facts.huge_pages = line_of("/sys/kernel/mm/transparent_hugepage/enabled");
  facts.shmem_huge_pages = line_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  // Presence only: nothing of it is called.
  if (void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) facts.cuda_driver = true, dlclose(driver);
}

void gather_isolation(Facts& facts) {
  struct stat info {};
  facts.initial_pid_namespace = stat("/proc/self/ns/pid", &info) == 0 && info.st_ino == kInitialPidNamespace;
  std::istringstream pids(own_status("NSpid"));
  facts.pid_namespace_depth = 0;
  for (std::string pid; pids >> pid;) ++facts.pid_namespace_depth;
  for (const char* mark : {"/.dockerenv", "/run/.containerenv"})
    if (stat(mark, &info) == 0) facts.container_marks.emplace_back(mark);
  if (const char* container = std::getenv("container"); container != nullptr && *container != '\0')
    facts.container_marks.push_back("container=" + core::escape(container));
  facts.seccomp = static_cast<int>(std::strtol(own_status("Seccomp").c_str(), nullptr, 10));
  if (const std::string scope = line_of("/proc/sys/kernel/yama/ptrace_scope"); !scope.empty()) facts.yama_scope = std::atoi(scope.c_str());
}

}  // namespace

Facts gather(const Question& question) {
  Facts facts;
  core::check_instance_name(question.instance);
  facts.instance = question.instance;
  utsname system{};
  if (uname(&system) == 0) facts.release = system.release;
  facts.uid = geteuid(), facts.gid = getegid();
  facts.features = try_features();
  gather_places(question.instance, facts);
  gather_need(question, facts);
  facts.space = core::space_limits();
  facts.file_bytes = limit_of(RLIMIT_FSIZE), facts.descriptors = limit_of(RLIMIT_NOFILE);
  facts.address_space = limit_of(RLIMIT_AS), facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  gather_machine(facts);
  gather_isolation(facts);
  for (const core::BeaconData& beacon : core::list_beacons(geteuid())) (core::is_alive(beacon) ? facts.living : facts.dead).push_back(beacon);
  return facts;
}

}  // namespace gradshm::tools
