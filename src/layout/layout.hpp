// Where every parameter lies: offsets, buckets, groups. Immutable; computed once by the server from the first manifest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/manifest.hpp"

namespace gradshm::core {

inline constexpr std::uint64_t kParameterAlignment = 64;  // bytes: a cache line, and the widest vector
inline constexpr std::uint64_t kBucketAlignment = 64;
inline constexpr std::uint64_t kDefaultBucketBytes = 8u << 20;
inline constexpr std::size_t kMaxGroups = 1024;
inline constexpr std::uint64_t kMaxLayoutBytes = 1ull << 62;  // so that adding two offsets or sizes never wraps

struct Bucket {
  std::uint32_t first = 0;       // position in Layout::order()
  std::uint32_t parameters = 0;  // at least 1
  std::uint32_t group = 0;
  DType dtype = DType::f32;
  std::uint64_t offset = 0;      // bytes into the gradients
  std::uint64_t bytes = 0;       // to the end of its last parameter; padding between parameters included, a multiple of element size
};

struct Placement {
  std::uint64_t offset = 0;  // bytes into the gradients, multiple of 64
  std::uint64_t bytes = 0;   // numel * element size
  std::uint32_t bucket = 0;
  std::uint32_t group = 0;
  std::uint32_t position = 0;  // within the bucket
};

struct LayoutOptions {
  std::uint64_t bucket_bytes = kDefaultBucketBytes;  // a larger parameter is a bucket of its own
  std::vector<std::string> group_prefixes;           // a name's longest matching prefix is its group; none matches: as the manifest says
};

class Layout {
 public:
  // Parameters are placed grouped by (group, dtype) in order of first appearance, within that in registration order. Groups: in order
  // of first appearance in the manifest. Throws Error(bad_layout): no parameters, more than 1,024 groups, total bytes above 2^62,
  // bucket_bytes 0, a group prefix that is no name. Parameters without elements take no bytes; with only such ones
  // gradient_bytes() is 0.
  Layout(Manifest manifest, const LayoutOptions& options);
  // As decoded: the caller has checked that all of it fits together.
  Layout(Manifest manifest, std::vector<Placement> placements, std::vector<Bucket> buckets, std::vector<std::uint32_t> order,
         std::vector<std::string> groups, std::uint64_t gradient_bytes);

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return manifest_.parameters(); }
  [[nodiscard]] const std::vector<Placement>& placements() const noexcept { return placements_; }  // by parameter index
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }           // by offset
  [[nodiscard]] const std::vector<std::uint32_t>& order() const noexcept { return order_; }        // parameter indexes by offset
  [[nodiscard]] const std::vector<std::string>& groups() const noexcept { return groups_; }
  [[nodiscard]] std::uint64_t gradient_bytes() const noexcept { return gradient_bytes_; }          // of one slot, multiple of 64
  [[nodiscard]] std::uint64_t layout_fingerprint() const noexcept { return fingerprint_; }         // fingerprint(manifest())

 private:
  Manifest manifest_;
  std::vector<Placement> placements_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> order_;
  std::vector<std::string> groups_;
  std::uint64_t gradient_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// The sealed table that every process maps (the layout object), see layout_format.hpp. Little-endian, fixed-width, no pointers; its
// last 8 bytes are a checksum over all before them, XXH3-64 (as for ids, so zlib is not needed). decode_layout wants exactly the bytes
// that encode_layout made; it checks every count, offset and string before use and rebuilds the Layout, or throws Error(corrupt)
// (incompatible: another version of the format).
[[nodiscard]] std::string encode_layout(const Layout& layout);
[[nodiscard]] Layout decode_layout(std::string_view bytes);

}  // namespace gradshm::core
