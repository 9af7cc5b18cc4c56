#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "sources.hpp"

namespace gradshm::core::test {
namespace {

constexpr std::size_t kAllHalves = 65536;

bool is_nan(DType dtype, std::uint16_t half) { return (half & 0x7fff) > (dtype == DType::f16 ? 0x7c00 : 0x7f80); }
std::uint16_t canonical(DType dtype, std::uint16_t half) {
  if (!is_nan(dtype, half)) return half;
  return dtype == DType::f16 ? 0x7e00 : 0x7fc0;
}

// One source passes through unchanged, so decode and encode are each other's inverse on every value.
void check_all_pass(DType dtype) {
  Aligned<std::uint16_t> source(kAllHalves);
  Aligned<std::uint16_t> out(kAllHalves);
  for (std::size_t i = 0; i < kAllHalves; ++i) source[i] = static_cast<std::uint16_t>(i);
  const std::array<const void*, 1> sources = {source.data()};
  HostReducer reducer(1);
  (void)sum_one(reducer, {dtype, kAllHalves, sources, {}, 1, out.data()});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kAllHalves; ++i) wrong += out[i] == canonical(dtype, source[i]) ? 0 : 1;
  CHECK(wrong == 0);
}

// The mean of two neighbours lies exactly between them: the even one must come out. Neighbour pairs of positive finite values.
template <class Decode>
void check_ties(DType dtype, std::uint16_t infinity, Decode decode) {
  const std::size_t count = infinity - 1U;
  Aligned<std::uint16_t> lower(count);
  Aligned<std::uint16_t> upper(count);
  Aligned<std::uint16_t> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    lower[i] = static_cast<std::uint16_t>(i);
    upper[i] = static_cast<std::uint16_t>(i + 1);
  }
  const std::array<const void*, 2> sources = {lower.data(), upper.data()};
  HostReducer reducer(1);
  (void)sum_one(reducer, {dtype, count, sources, {}, 2, out.data()});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool exact = decode(lower[i]) + decode(upper[i]) <= std::numeric_limits<float>::max();  // bf16 near its end: f32 overflows
    const auto want = exact ? (i % 2 == 0 ? lower[i] : upper[i]) : infinity;
    wrong += out[i] == want ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("all 65,536 f16 and bf16 values pass a sum of one source unchanged on every target, NaNs canonical") {
  const TargetGuard guard;
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    REQUIRE(force_simd_target(target));
    check_all_pass(DType::f16);
    check_all_pass(DType::bf16);
  }
}

TEST_CASE("a result half-way between two f16 or bf16 values becomes the even one on every target") {
  const TargetGuard guard;
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    REQUIRE(force_simd_target(target));
    check_ties(DType::f16, 0x7c00, f32_of_f16);
    check_ties(DType::bf16, 0x7f80, f32_of_bf16);
  }
}

TEST_CASE("the scalar conversions return every f16 and bf16 value that they widened") {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kAllHalves; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    wrong += f16_of_f32(f32_of_f16(half)) == canonical(DType::f16, half) ? 0 : 1;
    wrong += bf16_of_f32(f32_of_bf16(half)) == canonical(DType::bf16, half) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the scalar f16 conversion has the known values at every edge") {
  CHECK(f32_of_f16(0x3c00) == 1.0F);
  CHECK(f32_of_f16(0x7bff) == 65504.0F);
  CHECK(f32_of_f16(0x0001) == 0x1p-24F);
  CHECK(f32_of_f16(0x83ff) == -0x1.ff8p-15F);
  CHECK(f16_of_f32(65519.99F) == 0x7bff);
  CHECK(f16_of_f32(65520.0F) == 0x7c00);  // half-way to 65536, whose mantissa is even
  CHECK(f16_of_f32(-1e30F) == 0xfc00);
  CHECK(f16_of_f32(0x1p-25F) == 0x0000);  // half-way to the smallest denormal: the even one is 0
  CHECK(f16_of_f32(0x1.000002p-25F) == 0x0001);
  CHECK(f16_of_f32(-0x1.8p-24F) == 0x8002);
  CHECK(f16_of_f32(0x1.ffep-15F) == 0x0400);  // rounds up into the normal numbers
  CHECK(f16_of_f32(1.0F + 0x1p-11F) == 0x3c00);
  CHECK(f16_of_f32(1.0F + 0x1.8p-10F) == 0x3c02);
  CHECK(f16_of_f32(0x1.002002p0F) == 0x3c01);
  CHECK(f16_of_f32(std::bit_cast<float>(0xff800001U)) == kF16NaN);
}

TEST_CASE("the scalar bf16 conversion has the known values at every edge") {
  CHECK(f32_of_bf16(0x3f80) == 1.0F);
  CHECK(bf16_of_f32(1.0F + 0x1p-8F) == 0x3f80);
  CHECK(bf16_of_f32(1.0F + 0x1.8p-7F) == 0x3f82);
  CHECK(bf16_of_f32(1.0F + 0x1.0002p-8F) == 0x3f81);
  CHECK(bf16_of_f32(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(bf16_of_f32(std::bit_cast<float>(0x00018000U)) == 0x0002);
  CHECK(bf16_of_f32(std::bit_cast<float>(0x7f800001U)) == kBf16NaN);
  CHECK(bf16_of_f32(-0.0F) == 0x8000);
}

#ifdef __FLT16_MANT_DIG__
// The compiler's own conversion is a second opinion, over a step through all f32 bit patterns.
TEST_CASE("the scalar f16 conversion agrees with the compiler's") {
  std::size_t wrong = 0;
  for (std::uint64_t bits = 0; bits < 1ULL << 32; bits += 4093) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    wrong += f16_of_f32(value) == std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)) ? 0 : 1;
  }
  CHECK(wrong == 0);
}
#endif

}  // namespace
}  // namespace gradshm::core::test
