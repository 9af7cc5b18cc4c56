// A sealed anonymous file, and mappings of it (Boost.Interprocess mapped_region; MemFd models its memory-mappable concept).
#pragma once

#include <boost/interprocess/detail/os_file_functions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace gradshm::core {

// From linux/fcntl.h; glibc's fcntl.h of Debian 12 has them only with _GNU_SOURCE and new headers.
inline constexpr int kSealSeal = 0x1, kSealShrink = 0x2, kSealGrow = 0x4, kSealWrite = 0x8, kSealFutureWrite = 0x10;

class MemFd {
 public:
  MemFd() = default;
  explicit MemFd(UniqueFd fd) : fd_(std::move(fd)) {}
  // Mode 0600, close-on-exec, `bytes` long, no pages allocated. Throws Error naming the call.
  [[nodiscard]] static MemFd create(const std::string& name, std::uint64_t bytes);
  // A sealed read-only file with this content.
  [[nodiscard]] static MemFd sealed_copy(const std::string& name, std::string_view content);

  void allocate() const;               // takes the pages now (posix_fallocate); the caller has checked that they are there
  void seal(int seals) const;
  [[nodiscard]] int seals() const;     // -1 if the descriptor cannot be sealed: no memfd
  [[nodiscard]] std::uint64_t size() const;             // bytes, by fstat
  [[nodiscard]] std::uint64_t allocated_bytes() const;  // by fstat's block count
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  // Boost.Interprocess MemoryMappable.
  [[nodiscard]] boost::interprocess::mapping_handle_t get_mapping_handle() const { return {fd_.get(), false}; }
  [[nodiscard]] boost::interprocess::mode_t get_mode() const { return boost::interprocess::read_write; }

 private:
  UniqueFd fd_;
};

// Another descriptor of the same memory, through which nobody can map it writable. Empty where that fails: no /proc, no descriptor left.
// (A process of our own uid could open it for writing again through /proc; against such a one nothing holds anyway.)
[[nodiscard]] UniqueFd reopen_read_only(const MemFd& file) noexcept;

class Mapping {
 public:
  enum class Access { read_only, read_write };
  Mapping() = default;
  // Not inherited by forked children (MADV_DONTFORK). populate: fault the pages in now. Throws Error naming what.
  Mapping(const MemFd& file, Access access, std::uint64_t bytes, const char* what, bool populate = false);

  // Another file of the same size takes this one's place at the same address, read-only: pointers into the mapping stay good, and every
  // load meets either the old or the new file. Boost.Interprocess cannot do this, so it is a plain mmap with MAP_FIXED over its region.
  void replace(const MemFd& file, const char* what, bool populate = false);

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(region_.get_address()); }
  [[nodiscard]] std::uint64_t size() const noexcept { return region_.get_size(); }
  [[nodiscard]] explicit operator bool() const noexcept { return region_.get_size() != 0; }
  template <class T>
  [[nodiscard]] T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(data() + offset);
  }

 private:
  boost::interprocess::mapped_region region_;
};

// The whole content, read once into private memory, of a descriptor that somebody sent: refused unless it is a memfd sealed against
// every change and at most `max_bytes` long. `what` names it in the Error.
[[nodiscard]] std::string read_sealed(const MemFd& file, std::uint64_t max_bytes, const char* what);

}  // namespace gradshm::core
