#include "base/status.hpp"

#include <cerrno>

namespace gradshm::core {

const char* status_text(int code) noexcept {
  switch (static_cast<Status>(code)) {
    case Status::ok: return "ok";
    case Status::empty: return "the round closed empty";
    case Status::timeout: return "the deadline passed";
    case Status::evicted: return "no longer a member";
    case Status::daemon_lost: return "the server is gone";
    case Status::already_committed: return "already committed";
    case Status::not_committed: return "nothing committed to this round";
    case Status::round_closed: return "the round is closed";
    case Status::not_closed: return "the round is not closed";
    case Status::not_member: return "not a member of the open round";
    case Status::invalid: return "invalid argument";
    case Status::not_found: return "not found";
    case Status::layout_mismatch: return "layouts differ";
    case Status::bad_layout: return "malformed layout";
    case Status::no_server: return "no such server";
    case Status::already_running: return "a server of that name runs already";
    case Status::rank_taken: return "the rank is taken";
    case Status::full: return "no place for another worker";
    case Status::no_space: return "not enough memory";
    case Status::permission: return "not permitted";
    case Status::incompatible: return "incompatible versions or options";
    case Status::corrupt: return "corrupt data";
    case Status::forked: return "handle of the parent process";
    case Status::system: return "system call failed";
    case Status::unsupported: return "not supported by this kernel";
    case Status::no_memory: return "out of memory";
    case Status::internal: return "internal fault of gradshm";
  }
  return "unknown code";
}

const std::error_category& gradshm_category() noexcept {
  static const struct : std::error_category {
    const char* name() const noexcept override { return "gradshm"; }
    std::string message(int code) const override { return status_text(code); }
  } category;
  return category;
}

namespace {
Status status_of_errno(int error_number) {
  switch (error_number) {
    case EACCES:
    case EPERM: return Status::permission;
    case ENOMEM: return Status::no_memory;
    case ENOSPC:
    case EFBIG: return Status::no_space;
    case ENOSYS: return Status::unsupported;
    default: return Status::system;
  }
}
}  // namespace

Error system_error(const std::string& what, int error_number) {
  return {status_of_errno(error_number), what + ": " + std::generic_category().message(error_number)};
}

}  // namespace gradshm::core
