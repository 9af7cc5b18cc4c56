// f16 and bf16 to and from f32, one value at a time, by integer operations. Rounds to nearest even; a NaN comes out as the canonical
// quiet NaN of the type it is turned into.
#pragma once

#include <bit>
#include <cstdint>

namespace gradshm::core {

inline constexpr std::uint16_t kF16NaN = 0x7e00;
inline constexpr std::uint16_t kBf16NaN = 0x7fc0;
inline constexpr std::uint32_t kF32NaN = 0x7fc00000;
inline constexpr std::uint64_t kF64NaN = 0x7ff8000000000000;

// Drops the lowest `shift` bits (1 to 31), to nearest, ties to even.
[[nodiscard]] constexpr std::uint32_t shift_right_to_nearest_even(std::uint32_t value, std::uint32_t shift) {
  const std::uint32_t kept = value >> shift;
  const std::uint32_t dropped = value & ((1U << shift) - 1);
  const std::uint32_t half = 1U << (shift - 1);
  return kept + ((dropped > half || (dropped == half && (kept & 1) != 0)) ? 1 : 0);
}

[[nodiscard]] constexpr float f32_of_bf16(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  return std::bit_cast<float>((bits & 0x7fffffff) > 0x7f800000 ? kF32NaN : bits);
}

[[nodiscard]] constexpr std::uint16_t bf16_of_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return kBf16NaN;
  return static_cast<std::uint16_t>(shift_right_to_nearest_even(bits, 16));
}

[[nodiscard]] constexpr float f32_of_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  std::uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(mantissa != 0 ? kF32NaN : sign | 0x7f800000);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  std::uint32_t f32_exponent = 113;  // of 2^-14; a denormal has no leading one, so look for it
  for (; (mantissa & 0x400) == 0; mantissa <<= 1) --f32_exponent;
  return std::bit_cast<float>(sign | (f32_exponent << 23) | ((mantissa & 0x3ff) << 13));
}

[[nodiscard]] constexpr std::uint16_t f16_of_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint32_t exponent = magnitude >> 23;
  if (magnitude > 0x7f800000) return kF16NaN;
  if (exponent >= 143) return static_cast<std::uint16_t>(sign | 0x7c00);  // 65536 and up
  if (exponent < 102) return static_cast<std::uint16_t>(sign);            // below 2^-25, half the smallest denormal
  if (exponent >= 113) {  // 2^-14 and up: normal; rounding may carry into the exponent, up to infinity
    return static_cast<std::uint16_t>(sign | shift_right_to_nearest_even(magnitude - (112U << 23), 13));
  }
  const std::uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  return static_cast<std::uint16_t>(sign | shift_right_to_nearest_even(mantissa, 126 - exponent));
}

}  // namespace gradshm::core
