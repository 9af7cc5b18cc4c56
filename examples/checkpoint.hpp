// A state in a file that is always whole: written beside it, then renamed over it. For workers that come while others train.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>

namespace examples {

namespace detail {
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] inline void fail(const std::string& what) { throw std::system_error(errno, std::system_category(), what); }
}  // namespace detail

// Several processes may write the same state at once. Not synced: it outlives processes, not the machine.
inline void write_checkpoint(const std::string& path, std::span<const std::byte> state) {
  const std::string beside = path + "." + std::to_string(getpid());
  {
    const detail::File file(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.fd() < 0) detail::fail("cannot write " + beside);
    for (std::size_t done = 0; done < state.size();) {
      const ssize_t written = write(file.fd(), state.data() + done, state.size() - done);
      if (written < 0 && errno != EINTR) detail::fail("cannot write " + beside);
      if (written > 0) done += static_cast<std::size_t>(written);
    }
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) detail::fail("cannot rename " + beside + " to " + path);
}

// The first bytes of it, all of the same state. False: there is none yet. Throws where it is shorter than asked for.
inline bool read_checkpoint(const std::string& path, std::span<std::byte> state) {
  const detail::File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0 && errno == ENOENT) return false;
  if (file.fd() < 0) detail::fail("cannot read " + path);
  for (std::size_t done = 0; done < state.size();) {
    const ssize_t got = read(file.fd(), state.data() + done, state.size() - done);
    if (got < 0 && errno != EINTR) detail::fail("cannot read " + path);
    if (got == 0) throw std::runtime_error(path + " is no checkpoint of this training: it is too short");
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  return true;
}

// The round that it begins with; 0 where there is none.
inline std::uint64_t checkpoint_round(const std::string& path) {
  std::uint64_t round = 0;
  (void)read_checkpoint(path, std::as_writable_bytes(std::span(&round, 1)));
  return round;
}

}  // namespace examples
