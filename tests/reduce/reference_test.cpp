// The oracle itself, against values worked out by hand.
#include <doctest/doctest.h>

#include <array>

#include "sources.hpp"

namespace gradshm::core::test {
namespace {

TEST_CASE("the reference adds in the order given") {
  Aligned<float> a{1e8F}, b{1}, c{-1e8F}, out(1);
  const std::array<const void*, 3> lost = {a.data(), b.data(), c.data()};
  const std::array<const void*, 3> kept = {a.data(), c.data(), b.data()};
  (void)reference_sum({DType::f32, 1, lost, {}, 1, out.data()});
  CHECK(out[0] == 0);
  (void)reference_sum({DType::f32, 1, kept, {}, 1, out.data()});
  CHECK(out[0] == 1);
}

TEST_CASE("the reference rounds a product before it adds it") {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24; the product loses the last term in f32, a fused one would not.
  Aligned<float> a{-1 - 0x1p-11F}, b{1 + 0x1p-12F}, out(1);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  const std::array<double, 2> weights = {1, 1 + 0x1p-12};
  (void)reference_sum({DType::f32, 1, sources, weights, 1, out.data()});
  CHECK(out[0] == 0);
}

TEST_CASE("the reference rounds weights and divisors to f32 for f32, and keeps them for f64") {
  Aligned<float> a{3}, out(1);
  Aligned<double> wide{3}, wide_out(1);
  const std::array<const void*, 1> sources = {a.data()};
  const std::array<const void*, 1> wide_sources = {wide.data()};
  const std::array<double, 1> weights = {0.1};
  (void)reference_sum({DType::f32, 1, sources, weights, 0.3, out.data()});
  (void)reference_sum({DType::f64, 1, wide_sources, weights, 0.3, wide_out.data()});
  CHECK(out[0] == 0.1F * 3.0F / 0.3F);
  CHECK(wide_out[0] == 0.1 * 3.0 / 0.3);
}

TEST_CASE("the reference divides the accumulator before the one rounding") {
  Aligned<std::uint16_t> a{f16_of_f32(60000)}, b{f16_of_f32(60000)}, out(1);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  (void)reference_sum({DType::f16, 1, sources, {}, 2, out.data()});
  CHECK(f32_of_f16(out[0]) == 60000);  // rounding the sum first would have overflowed
}

TEST_CASE("the reference gives zero bytes without sources") {
  Aligned<float> out{1, 2, 3};
  const SumStats stats = reference_sum({DType::f32, 3, {}, {}, 5, out.data()});
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::bit_cast<std::uint32_t>(out[i]) == 0);
  CHECK(same_bits(stats.sum_of_squares, 0));
}

TEST_CASE("the reference sums squares of the stored values, in lanes and tiles") {
  constexpr std::size_t kNumel = kTileElems + 1;
  Aligned<float> a(kNumel), out(kNumel);
  for (std::size_t i = 0; i < kNumel; ++i) a[i] = 1;
  a[0] = 0x1p27F;  // its square, 2^54, swallows the 1s of its lane and no others
  const std::array<const void*, 1> sources = {a.data()};
  const SumStats stats = reference_sum({DType::f32, kNumel, sources, {}, 1, out.data()});
  // lane 0: 2^54; lanes 1 to 15: 256 each; 8+8, 4+4, 2+2, 1+1 stay exact; the next tile's 1 is half a unit below 4: lost.
  CHECK(stats.sum_of_squares == 0x1p54 + 15 * 256);
}

}  // namespace
}  // namespace gradshm::core::test
