// The bytes of the layout object. Inside this layer only.
//
//   LayoutHeader
//   labels:      (u32 bytes, text) each; the first `groups` of them are the layout's groups, the others only names that the manifest gives
//   parameters:  (ParameterRecord, shape as i64, name, (u32 bytes, text) for each alias) each, in registration order
//   buckets:     BucketRecord each, by offset
//   checksum:    u64, XXH3-64 of all before it
//
// Everything follows directly on what is before it, unaligned, so a record has no offset that could point anywhere.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradshm::core {

static_assert(std::endian::native == std::endian::little, "the records below are written as they lie in memory");

inline constexpr std::uint64_t kLayoutMagic = 0x4c4d485344415247ull;  // "GRADSHML"
inline constexpr std::uint32_t kLayoutVersion = 1;
inline constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);

struct LayoutHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t groups;
  std::uint64_t total_bytes;  // checksum included
  std::uint64_t fingerprint;
  std::uint64_t gradient_bytes;
  std::uint32_t labels;
  std::uint32_t parameters;
  std::uint32_t buckets;
  std::uint32_t reserved;  // 0
};
static_assert(sizeof(LayoutHeader) == 56 && offsetof(LayoutHeader, reserved) == 52);

struct ParameterRecord {
  std::uint64_t id;
  std::uint64_t offset;
  std::uint32_t bucket;
  std::uint32_t position;
  std::uint32_t label;  // the group that the manifest gives
  std::uint16_t name_bytes;
  std::uint8_t aliases;
  std::uint8_t dims;
  std::uint8_t dtype;
  std::uint8_t order;
  std::uint8_t reserved[6];  // 0
};
static_assert(sizeof(ParameterRecord) == 40 && offsetof(ParameterRecord, reserved) == 34);

struct BucketRecord {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint32_t parameters;
  std::uint32_t group;
};
static_assert(sizeof(BucketRecord) == 24 && offsetof(BucketRecord, group) == 20);

}  // namespace gradshm::core
