#include "reduce/nonfinite.hpp"

#include <cstring>

namespace gradshm::core {
namespace {

// NaN and infinity are the values whose exponent bits are all set, so integers can tell.
template <class Bits>
std::uint64_t count(const void* data, std::uint64_t first, std::uint64_t elems, Bits exponent) noexcept {
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < elems; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, static_cast<const char*>(data) + (first + i) * sizeof(Bits), sizeof(Bits));
    found += (bits & exponent) == exponent ? 1 : 0;
  }
  return found;
}

}  // namespace

std::uint64_t count_nonfinite(DType dtype, const void* data, std::uint64_t first, std::uint64_t elems) noexcept {
  switch (dtype) {
    case DType::f32: return count<std::uint32_t>(data, first, elems, 0x7f800000U);
    case DType::f64: return count<std::uint64_t>(data, first, elems, 0x7ff0000000000000U);
    case DType::f16: return count<std::uint16_t>(data, first, elems, std::uint16_t{0x7c00});
    case DType::bf16: return count<std::uint16_t>(data, first, elems, std::uint16_t{0x7f80});
  }
  __builtin_unreachable();
}

}  // namespace gradshm::core
