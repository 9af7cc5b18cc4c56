// Arithmetic that says when it overflows, instead of wrapping.
#pragma once

#include <cstdint>
#include <optional>

namespace gradshm::core {

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// alignment: a power of two. The caller has checked that value is at most 2^63.
[[nodiscard]] constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// [offset, offset + bytes) lies in [0, total).
[[nodiscard]] constexpr bool lies_within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t total) {
  return offset <= total && bytes <= total - offset;
}

}  // namespace gradshm::core
