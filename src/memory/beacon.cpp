#include "memory/beacon.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/shared_memory_object.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/status.hpp"
#include "base/text.hpp"
#include "memory/rundir.hpp"

namespace gradshm::core {
namespace bip = boost::interprocess;
namespace {

constexpr const char* kDirectory = "/dev/shm/";  // where Linux shows POSIX shared memory; rename needs a path

std::optional<BeaconData> read_fd(int fd) {
  BeaconData data;
  const ssize_t got = pread(fd, &data, sizeof data, 0);
  struct stat info {};
  if (got != static_cast<ssize_t>(sizeof data) || fstat(fd, &info) != 0) return std::nullopt;
  const std::uint64_t checksum = data.object.checksum;
  finish_header(data);
  const bool sound = data.object.magic == static_cast<std::uint64_t>(ObjectKind::beacon) && data.object.abi_hash == abi_hash() &&
                     data.object.checksum == checksum && info.st_uid == data.uid;  // anybody may make files in /dev/shm
  if (!sound) return std::nullopt;
  data.name[sizeof data.name - 1] = data.socket_path[sizeof data.socket_path - 1] = '\0';
  return data;
}

std::optional<BeaconData> read_path(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return std::nullopt;
  // Two tries: a pread may meet a pwrite in the middle.
  if (auto data = read_fd(fd.get())) return data;
  return read_fd(fd.get());
}

}  // namespace

namespace {
std::string prefix_of(uid_t uid) { return "gradshm." + std::to_string(uid) + "."; }

// `directory`: the run directory, that is the socket's path without /<name>/sock.
std::string name_in(const std::string& directory, uid_t uid, const std::string& instance) {
  return prefix_of(uid) + instance + "@" + format_hex(checksum_of(directory.data(), directory.size())).substr(8);
}

std::string file_of(const BeaconData& data) {
  const std::string socket(data.socket_path), tail = std::string("/") + data.name + "/sock";
  return name_in(socket.ends_with(tail) ? socket.substr(0, socket.size() - tail.size()) : socket, data.uid, data.name);
}
}  // namespace

std::string beacon_name(uid_t uid, const std::string& instance) { return name_in(run_directory(), uid, instance); }

Beacon::Beacon(const std::string& instance, BeaconData data)
    : path_(kDirectory + beacon_name(geteuid(), instance)), incarnation_(data.incarnation) {
  const std::string temporary = "new-" + beacon_name(geteuid(), instance);  // a name that list_beacons passes over
  try {
    bip::shared_memory_object::remove(temporary.c_str());
    bip::shared_memory_object object(bip::create_only, temporary.c_str(), bip::read_write, bip::permissions(0600));
    object.truncate(sizeof(BeaconData));
    fd_.reset(fcntl(object.get_mapping_handle().handle, F_DUPFD_CLOEXEC, 0));
  } catch (const bip::interprocess_exception& error) {
    bip::shared_memory_object::remove(temporary.c_str());
    throw system_error("cannot create the beacon " + std::string(kDirectory) + temporary, error.get_native_error());
  }
  if (!fd_) {
    const int error_number = errno;
    bip::shared_memory_object::remove(temporary.c_str());
    throw system_error("dup of the beacon", error_number);
  }
  const bool made = update(data) && rename((kDirectory + temporary).c_str(), path_.c_str()) == 0;
  if (made) return;
  const int error_number = errno;
  bip::shared_memory_object::remove(temporary.c_str());
  throw system_error("cannot write the beacon " + path_, error_number);
}

Beacon::~Beacon() = default;

bool Beacon::update(BeaconData data) noexcept {
  data.sequence = ++sequence_;
  data.object.magic = static_cast<std::uint64_t>(ObjectKind::beacon);
  data.object.abi_major = kAbiMajor, data.object.abi_minor = kAbiMinor, data.object.abi_hash = abi_hash();
  data.object.total_bytes = sizeof(BeaconData);
  finish_header(data);
  return pwrite(fd_.get(), &data, sizeof data, 0) == static_cast<ssize_t>(sizeof data);
}

void Beacon::remove() noexcept {
  if (const auto there = read_path(path_); there && there->incarnation == incarnation_) unlink(path_.c_str());
}

bool remove_beacon(const BeaconData& beacon) noexcept {
  const std::string path = kDirectory + file_of(beacon);
  const auto there = read_path(path);
  return there && there->incarnation == beacon.incarnation && unlink(path.c_str()) == 0;
}

std::optional<BeaconData> read_beacon(uid_t uid, const std::string& instance) {
  return read_path(kDirectory + beacon_name(uid, instance));
}

std::vector<BeaconData> list_beacons(uid_t uid) {
  std::vector<BeaconData> found;
  std::error_code error;
  const std::string prefix = prefix_of(uid);
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory, error)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(prefix)) continue;
    if (auto data = read_path(entry.path().string()); data && file == file_of(*data)) found.push_back(*data);
  }
  std::sort(found.begin(), found.end(), [](const BeaconData& a, const BeaconData& b) { return std::strcmp(a.name, b.name) < 0; });
  return found;
}

std::uint64_t pid_start_time(pid_t pid) {
  // By read: the process may be reaped between open and read, and a stream buffer throws then.
  const UniqueFd file(open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(1024, '\0');
  const ssize_t got = file ? read(file.get(), text.data(), text.size()) : -1;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  // The command in field 2 may hold anything, so fields are counted from its closing parenthesis.
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos || close + 2 >= text.size() || text[close + 2] == 'Z') return 0;
  std::uint64_t start = 0;
  std::size_t at = close + 1;
  for (int field = 2; field < 21 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at == std::string::npos || std::sscanf(text.c_str() + at, "%lu", &start) != 1) return 0;
  return start;
}

bool is_hidden(pid_t pid) {
  const bool there = kill(pid, 0) == 0 || errno == EPERM;
  return there && access(("/proc/" + std::to_string(pid) + "/stat").c_str(), R_OK) != 0;
}

std::uint64_t own_pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool is_alive(const BeaconData& beacon) {
  if (beacon.pid_namespace != 0 && beacon.pid_namespace != own_pid_namespace()) return true;  // its pid says nothing here
  return beacon.pid > 0 && pid_start_time(beacon.pid) == beacon.pid_start;
}

}  // namespace gradshm::core
