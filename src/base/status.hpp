// Status codes and the one exception type. Set-up throws Error; the steady state returns Status.
#pragma once

#include <gradshm/gradshm.h>

#include <string>
#include <system_error>

namespace gradshm::core {

enum class [[nodiscard]] Status : int {
  ok = GRADSHM_OK,
  empty = GRADSHM_EMPTY,
  timeout = GRADSHM_TIMEOUT,
  evicted = GRADSHM_EVICTED,
  daemon_lost = GRADSHM_DAEMON_LOST,
  already_committed = GRADSHM_ALREADY_COMMITTED,
  not_committed = GRADSHM_NOT_COMMITTED,
  round_closed = GRADSHM_ROUND_CLOSED,
  not_closed = GRADSHM_NOT_CLOSED,
  not_member = GRADSHM_NOT_MEMBER,
  invalid = GRADSHM_INVALID,
  not_found = GRADSHM_NOT_FOUND,
  layout_mismatch = GRADSHM_LAYOUT_MISMATCH,
  bad_layout = GRADSHM_BAD_LAYOUT,
  no_server = GRADSHM_NO_SERVER,
  already_running = GRADSHM_ALREADY_RUNNING,
  rank_taken = GRADSHM_RANK_TAKEN,
  full = GRADSHM_FULL,
  no_space = GRADSHM_NO_SPACE,
  permission = GRADSHM_PERMISSION,
  incompatible = GRADSHM_INCOMPATIBLE,
  corrupt = GRADSHM_CORRUPT,
  forked = GRADSHM_FORKED,
  system = GRADSHM_SYSTEM,
  unsupported = GRADSHM_UNSUPPORTED,
  no_memory = GRADSHM_NO_MEMORY,
  internal = GRADSHM_INTERNAL,
};

// Short text of a code; "unknown code" for anything else.
const char* status_text(int code) noexcept;

const std::error_category& gradshm_category() noexcept;

// what() is the whole sentence, as given.
class Error : public std::system_error {
 public:
  Error(Status status, std::string sentence)
      : std::system_error(static_cast<int>(status), gradshm_category()), status_(status), sentence_(std::move(sentence)) {}
  [[nodiscard]] Status status() const noexcept { return status_; }
  [[nodiscard]] const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  Status status_;
  std::string sentence_;
};

// The failed system call in words: "memfd_create: Too many open files"; errno decides the code (EACCES and EPERM permission,
// ENOMEM no_memory, ENOSPC no_space, EFBIG no_space, ENOSYS unsupported, else system).
[[nodiscard]] Error system_error(const std::string& what, int error_number);

}  // namespace gradshm::core
