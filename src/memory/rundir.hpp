// Where an instance lives on disk: its directory with `sock` and `lock`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace gradshm::core {

// 1 to 64 of letters, digits, '.', '_', '-', not "." or "..". Throws Error(invalid) naming the rule.
void check_instance_name(const std::string& name);
// `given`, or where empty $GRADSHM_INSTANCE, else "default"; checked.
[[nodiscard]] std::string resolve_instance_name(const char* given);

// $GRADSHM_DIR, else $XDG_RUNTIME_DIR/gradshm, else /tmp/gradshm-<uid>.
[[nodiscard]] std::string run_directory();
[[nodiscard]] bool run_directory_is_chosen();  // by $GRADSHM_DIR; empty counts as unset
[[nodiscard]] std::string socket_path(const std::string& instance);  // throws Error(invalid) above 107 bytes

// The gid of a group's name or of a number. Throws Error(invalid).
[[nodiscard]] gid_t group_id(const std::string& group);

// The first directory on the way to `path` that members of the group cannot pass; "" if there is none.
[[nodiscard]] std::string closed_to_group(const std::string& path, gid_t group);

// Server: makes the directories (mode 0700, or 0710 with a group whose members may attach), refuses foreign ones or ones others may
// write, takes the lock for life.
class InstanceDirectory {
 public:
  // Throws Error(already_running) naming the pid of the other server, permission or system.
  explicit InstanceDirectory(const std::string& instance, std::optional<gid_t> group = std::nullopt);
  ~InstanceDirectory();  // removes socket, lock and directory
  InstanceDirectory(const InstanceDirectory&) = delete;
  InstanceDirectory& operator=(const InstanceDirectory&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void close_lock() noexcept { lock_.reset(); }  // in a forked child; whoever else holds it still does

 private:
  void take_lock(const std::string& instance, std::optional<gid_t> group);
  std::string path_;
  UniqueFd lock_;
};

// What a killed server left in its directory: socket, lock, and the directory if nothing else is in it. Holding the lock meanwhile;
// `first` is called under it, and false ends it there. False: another server has the lock, or `first` said so.
bool remove_abandoned(const std::string& directory, const std::function<bool()>& first);

}  // namespace gradshm::core
