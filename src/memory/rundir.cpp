#include "memory/rundir.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/status.hpp"
#include "base/text.hpp"

namespace gradshm::core {
namespace {

constexpr std::size_t kMaxSocketPath = 107;  // sockaddr_un holds 108 bytes with the final zero

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

// One spelling of a directory: two processes that name it differently must find each other's beacon.
std::string absolute(const char* path) {
  std::string text = std::filesystem::absolute(path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

// Ours, a real directory, and nobody else may write in it. A group may pass through the directories that are made for it; those that
// are there already are left as they are.
void make_private_directory(const std::string& path, std::optional<gid_t> group) {
  const bool made = mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) throw system_error("cannot make the directory " + path, errno);
  if (made && group && (chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0 || chmod(path.c_str(), 0710) != 0))
    throw system_error("cannot give the directory " + path + " to group " + std::to_string(*group), errno);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) throw system_error("cannot look at " + path, errno);
  if (!S_ISDIR(info.st_mode))
    throw Error(Status::permission, path + (S_ISLNK(info.st_mode) ? " is a symbolic link" : " is no directory") + ": set GRADSHM_DIR to a directory of your own");
  if (info.st_uid != geteuid())
    throw Error(Status::permission, path + " belongs to uid " + std::to_string(info.st_uid) + ", not to you (uid " +
                                        std::to_string(geteuid()) + "): set GRADSHM_DIR to a directory of your own");
  if ((info.st_mode & 022) != 0) throw Error(Status::permission, path + " may be written by others: chmod go-w it, or set GRADSHM_DIR");
}

std::string holder_of(int lock) {
  std::array<char, 32> text{};
  const ssize_t got = pread(lock, text.data(), text.size() - 1, 0);
  const long pid = got > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
  return pid > 0 ? "pid " + std::to_string(pid) : "pid unknown";
}

// nullptr-like empty fd: the file was replaced between open and lock, try again.
UniqueFd try_lock(const std::string& path, const std::string& instance, int create = O_CREAT) {
  UniqueFd lock(open(path.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock && errno != ENOENT) throw system_error("cannot open " + path, errno);
  if (!lock) return lock;
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error("cannot lock " + path, errno);
    throw Error(Status::already_running, "a server '" + instance + "' runs already (" + holder_of(lock.get()) +
                                             "): stop it, or start this one with another --name");
  }
  struct stat ours {}, there {};
  if (fstat(lock.get(), &ours) != 0 || stat(path.c_str(), &there) != 0 || ours.st_ino != there.st_ino || ours.st_dev != there.st_dev) lock.reset();
  return lock;
}

// Whoever has the lock.
void remove_files(const std::string& directory) {
  unlink((directory + "/sock").c_str());
  unlink((directory + "/lock").c_str());
  rmdir(directory.c_str());
}

}  // namespace

void check_instance_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), is_name_character) && name != "." && name != "..";
  if (!good)
    throw Error(Status::invalid, "'" + escape(name.substr(0, 80)) + "' is no instance name: it takes 1 to 64 letters, digits, '.', '_', '-'");
}

std::string resolve_instance_name(const char* given) {
  const char* environment = std::getenv("GRADSHM_INSTANCE");
  std::string name = given != nullptr && *given != '\0' ? given : environment != nullptr && *environment != '\0' ? environment : "default";
  check_instance_name(name);
  return name;
}

bool run_directory_is_chosen() {
  const char* chosen = std::getenv("GRADSHM_DIR");
  return chosen != nullptr && *chosen != '\0';
}

std::string run_directory() {
  if (run_directory_is_chosen()) return absolute(std::getenv("GRADSHM_DIR"));
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') return std::string(runtime) + "/gradshm";
  return "/tmp/gradshm-" + std::to_string(geteuid());
}

std::string socket_path(const std::string& instance) {
  std::string path = run_directory() + "/" + instance + "/sock";
  if (path.size() > kMaxSocketPath)
    throw Error(Status::invalid, "the socket path " + path + " has " + std::to_string(path.size()) + " bytes, at most " +
                                     std::to_string(kMaxSocketPath) + " are possible: set GRADSHM_DIR to a shorter directory");
  return path;
}

gid_t group_id(const std::string& group) {
  gid_t id = 0;
  const auto parsed = std::from_chars(group.data(), group.data() + group.size(), id);
  if (parsed.ec == std::errc() && parsed.ptr == group.data() + group.size()) return id;
  if (const struct group* entry = getgrnam(group.c_str())) return entry->gr_gid;
  throw Error(Status::invalid, "there is no group '" + escape(group) + "': it takes a group's name or number (getent group lists them)");
}

std::string closed_to_group(const std::string& path, gid_t group) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string directory = path.substr(0, end);
    struct stat info {};
    const bool seen = stat(directory.c_str(), &info) == 0;
    if (seen && (info.st_mode & (info.st_gid == group ? 0010 : 0001)) == 0) return directory;
    if (end == std::string::npos) return "";
  }
}

InstanceDirectory::InstanceDirectory(const std::string& instance, std::optional<gid_t> group) : path_(run_directory() + "/" + instance) {
  check_instance_name(instance);
  [[maybe_unused]] const std::string checked = socket_path(instance);
  try {
    take_lock(instance, group);
  } catch (...) {
    // Only what is empty goes: another server's directory has its lock in it.
    if (lock_) unlink((path_ + "/lock").c_str());
    rmdir(path_.c_str());
    throw;
  }
}

void InstanceDirectory::take_lock(const std::string& instance, std::optional<gid_t> group) {
  for (int attempt = 0; attempt < 16 && !lock_; ++attempt) {
    make_private_directory(run_directory(), group);
    make_private_directory(path_, group);
    lock_ = try_lock(path_ + "/lock", instance);
  }
  if (!lock_) throw Error(Status::system, path_ + "/lock keeps changing under us");
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock_.get(), 0) != 0 || pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0) throw system_error("cannot write " + path_ + "/lock", errno);
}

InstanceDirectory::~InstanceDirectory() { remove_files(path_); }

bool remove_abandoned(const std::string& directory, const std::function<bool()>& first) {
  UniqueFd lock;
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0) return first();  // nothing is left there
  try {
    lock = try_lock(directory + "/lock", directory.substr(directory.rfind('/') + 1), 0);
  } catch (const Error&) {
    return false;
  }
  if (!first()) return false;
  if (lock) remove_files(directory);
  else rmdir(directory.c_str());  // no lock, nothing that is ours to judge: only if it is empty
  return true;
}

}  // namespace gradshm::core
