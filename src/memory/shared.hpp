// What all mapped objects share: the header that is checked before anything else is believed.
//
// Mapped structs hold fixed-width integers only: no pointers, no mutexes. Words that are accessed by two processes at once are reached through
// protocol/atomics.hpp only. Doubles are stored as their bits where they are such words.
#pragma once

#include <gradshm/gradshm.h>

#include <cstddef>
#include <cstdint>

#include "memory/memfd.hpp"

namespace gradshm::core {

inline constexpr std::uint32_t kAbiMajor = 0, kAbiMinor = 1;
inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::size_t kLineBytes = 128;  // two cache lines: adjacent-line prefetch shares pairs
inline constexpr std::size_t kMaxWorkers = GRADSHM_MAX_WORKERS;
inline constexpr std::size_t kRankWords = kMaxWorkers / 64;

enum class ObjectKind : std::uint64_t {
  control = 0x314c54434d485347,  // "GSHMCTL1"
  result = 0x315345524d485347,   // "GSHMRES1"
  slot = 0x31544c534d485347,     // "GSHMSLT1"
  beacon = 0x314e43424d485347,   // "GSHMBCN1"
};

struct ObjectHeader {
  std::uint64_t magic = 0;  // ObjectKind
  std::uint32_t abi_major = 0, abi_minor = 0;
  std::uint64_t abi_hash = 0;     // over size and offsets of all shared structs
  std::uint64_t total_bytes = 0;  // of the object
  std::uint64_t incarnation = 0;  // of the server
  std::uint64_t fingerprint = 0;  // of the layout
  std::uint64_t checksum = 0;     // XXH3-64 of this header with checksum 0, and of the specific header behind it
};
static_assert(sizeof(ObjectHeader) == 56);

[[nodiscard]] std::uint64_t abi_hash() noexcept;
[[nodiscard]] std::uint64_t checksum_of(const void* data, std::size_t bytes) noexcept;

// Throws Error(incompatible | corrupt) naming `what` and both sides' versions, unless magic, ABI and size fit.
void check_object(const ObjectHeader& header, ObjectKind kind, std::uint64_t file_bytes, const char* what);

// Header types start with an ObjectHeader member `object`.
template <class Header>
void finish_header(Header& header) {
  header.object.checksum = 0;
  header.object.checksum = checksum_of(&header, sizeof(Header));
}

// One private copy of the header that starts `mapping`, checked.
template <class Header>
Header checked_header(const std::byte* data, std::uint64_t file_bytes, ObjectKind kind, const char* what) {
  Header header{};
  if (file_bytes >= sizeof(Header)) __builtin_memcpy(&header, data, sizeof(Header));
  check_object(header.object, kind, file_bytes, what);
  Header probe = header;
  finish_header(probe);
  if (probe.object.checksum != header.object.checksum) header.object.magic = 0, check_object(header.object, kind, file_bytes, what);
  return header;
}

}  // namespace gradshm::core
