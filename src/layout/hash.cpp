#include "layout/hash.hpp"

// Inlined, so that nothing needs libxxhash at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gradshm::core {

std::uint64_t hash_bytes(std::string_view bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace gradshm::core
