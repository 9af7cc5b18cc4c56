// What reading a safetensors file and parsing its header share. Inside this layer only.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradshm::core {

inline constexpr std::uint64_t kSafetensorsPrefixBytes = 8;

// The length of the JSON header, from the 8 bytes before it. Throws Error(bad_layout) if it is impossible for a file of that size.
[[nodiscard]] std::uint64_t safetensors_header_bytes(std::string_view text, std::uint64_t file_bytes, std::string_view source);

}  // namespace gradshm::core
