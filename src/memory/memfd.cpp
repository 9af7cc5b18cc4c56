#include "memory/memfd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "base/status.hpp"
#include "base/text.hpp"

namespace gradshm::core {
namespace bip = boost::interprocess;

namespace {
constexpr int kAddSeals = 1024 + 9, kGetSeals = 1024 + 10;  // F_ADD_SEALS, F_GET_SEALS of linux/fcntl.h

struct stat stat_of(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw system_error("fstat of a memfd", errno);
  return info;
}
}  // namespace

MemFd MemFd::create(const std::string& name, std::uint64_t bytes) {
  UniqueFd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw system_error("memfd_create of '" + name + "'", errno);
  if (fchmod(fd.get(), 0600) != 0) throw system_error("fchmod of '" + name + "'", errno);
  // ftruncate beyond the limit would end the process with SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
    throw Error(Status::no_space, "cannot make '" + name + "' " + format_count(bytes) + " bytes long: RLIMIT_FSIZE allows " + format_count(limit.rlim_cur) +
                                      ", raise it (ulimit -f)");
  if (bytes > INT64_MAX || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw Error(Status::no_space, "cannot make '" + name + "' " + format_count(bytes) + " bytes long: " +
                                      (errno == EFBIG ? "above RLIMIT_FSIZE or the file system's limit" : "ftruncate failed"));
  return MemFd(std::move(fd));
}

MemFd MemFd::sealed_copy(const std::string& name, std::string_view content) {
  MemFd file = create(name, content.size());
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t written = pwrite(file.fd(), content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw system_error("write of '" + name + "'", errno);
    done += static_cast<std::size_t>(written);
  }
  file.seal(kSealShrink | kSealGrow | kSealWrite | kSealSeal);
  return file;
}

void MemFd::allocate() const {
  int result = 0;
  do result = posix_fallocate(fd_.get(), 0, static_cast<off_t>(size()));
  while (result == EINTR);
  if (result != 0)
    throw Error(Status::no_space, "cannot allocate " + format_count(size()) + " bytes of shared memory: " +
                                      std::generic_category().message(result));
}

void MemFd::seal(int seals) const {
  if (fcntl(fd_.get(), kAddSeals, seals) == 0) return;
  if (errno == EINVAL) throw Error(Status::unsupported, "this kernel lacks a memfd seal (F_SEAL_FUTURE_WRITE): Linux 5.4 or newer is needed");
  throw system_error("sealing a memfd", errno);
}

int MemFd::seals() const { return fcntl(fd_.get(), kGetSeals); }
std::uint64_t MemFd::size() const { return static_cast<std::uint64_t>(stat_of(fd_.get()).st_size); }
std::uint64_t MemFd::allocated_bytes() const { return static_cast<std::uint64_t>(stat_of(fd_.get()).st_blocks) * 512; }

UniqueFd reopen_read_only(const MemFd& file) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file.fd());
  return UniqueFd(open(path, O_RDONLY | O_CLOEXEC));
}

Mapping::Mapping(const MemFd& file, Access access, std::uint64_t bytes, const char* what, bool populate) {
  try {
    const auto mode = access == Access::read_only ? bip::read_only : bip::read_write;
    const bip::map_options_t options = populate ? MAP_POPULATE : bip::default_map_options;
    region_ = bip::mapped_region(file, mode, 0, bytes, nullptr, options);
  } catch (const bip::interprocess_exception& error) {
    throw system_error(std::string("cannot map the ") + what + " (" + format_count(bytes) + " bytes)", error.get_native_error());
  }
  if (madvise(data(), bytes, MADV_DONTFORK) != 0) throw system_error("madvise(MADV_DONTFORK)", errno);
}

void Mapping::replace(const MemFd& file, const char* what, bool populate) {
  const int flags = MAP_SHARED | MAP_FIXED | (populate ? MAP_POPULATE : 0);
  if (mmap(data(), size(), PROT_READ, flags, file.fd(), 0) == MAP_FAILED)
    throw system_error(std::string("cannot map the new ") + what + " over the old one (" + format_count(size()) + " bytes)", errno);
  if (madvise(data(), size(), MADV_DONTFORK) != 0) throw system_error("madvise(MADV_DONTFORK)", errno);
}

std::string read_sealed(const MemFd& file, std::uint64_t max_bytes, const char* what) {
  const int sealed = file.seals();
  const int needed = kSealShrink | kSealGrow | kSealWrite;
  if (sealed < 0 || (sealed & needed) != needed) throw Error(Status::corrupt, std::string(what) + " is no sealed memfd");
  const std::uint64_t bytes = file.size();
  if (bytes > max_bytes)
    throw Error(Status::invalid, std::string(what) + " has " + format_count(bytes) + " bytes; at most " + format_count(max_bytes) + " are taken");
  std::string content(bytes, '\0');
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = pread(file.fd(), content.data() + done, bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw system_error(std::string("reading ") + what, got < 0 ? errno : EIO);
    done += static_cast<std::size_t>(got);
  }
  return content;
}

}  // namespace gradshm::core
