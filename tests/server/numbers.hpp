// Small numbers that all four dtypes hold exactly, written and read as bits. Own code, so that the library's conversions are not
// tested against themselves.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <gradshm/gradshm.hpp>

namespace gradshm::test {

// Exact for multiples of 1/8 with at most 8 significant bits.
inline std::uint16_t bf16_bits(double value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}
inline double of_bf16(std::uint16_t bits) { return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)); }

inline std::uint16_t f16_bits(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // 0.5 <= fraction < 1
  const auto mantissa = static_cast<unsigned>(std::ldexp(fraction, 11)) & 0x3ffu;
  return static_cast<std::uint16_t>((value < 0 ? 0x8000u : 0u) | static_cast<unsigned>(exponent + 14) << 10 | mantissa);
}
inline double of_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double magnitude = exponent == 0 ? std::ldexp(bits & 0x3ff, -24) : std::ldexp((bits & 0x3ff) + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
void put(void* data, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * sizeof(T), &value, sizeof(T));
}
template <class T>
T get(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

inline void store_element(DType dtype, void* data, std::size_t index, double value) {
  switch (dtype) {
    case DType::f32: return put(data, index, static_cast<float>(value));
    case DType::f64: return put(data, index, value);
    case DType::f16: return put(data, index, f16_bits(value));
    case DType::bf16: return put(data, index, bf16_bits(value));
  }
}
inline double load_element(DType dtype, const void* data, std::size_t index) {
  switch (dtype) {
    case DType::f32: return static_cast<double>(get<float>(data, index));
    case DType::f64: return get<double>(data, index);
    case DType::f16: return of_f16(get<std::uint16_t>(data, index));
    case DType::bf16: return of_bf16(get<std::uint16_t>(data, index));
  }
  return 0;
}

}  // namespace gradshm::test
