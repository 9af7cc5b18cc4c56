// The member word: one u64 {generation, state}. Whoever finds a foreign generation in his rank's word is evicted.
#pragma once

#include <cstdint>

#include "memory/control.hpp"

namespace gradshm::core {

[[nodiscard]] constexpr std::uint64_t member_word(std::uint64_t generation, MemberState state) {
  return generation << 8 | static_cast<std::uint64_t>(state);
}
[[nodiscard]] constexpr std::uint64_t generation_of(std::uint64_t word) { return word >> 8; }
[[nodiscard]] constexpr MemberState state_of(std::uint64_t word) { return static_cast<MemberState>(word & 0xff); }

}  // namespace gradshm::core
