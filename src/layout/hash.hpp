// XXH3-64 with seed 0, the one hash of this code base: of names, of layouts, as checksum.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradshm::core {

[[nodiscard]] std::uint64_t hash_bytes(std::string_view bytes) noexcept;

}  // namespace gradshm::core
