#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "sources.hpp"

namespace gradshm::core::test {
namespace {

constexpr std::size_t kNumel = 3 * kTileElems + 11;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Counts = std::vector<std::uint64_t>;

TEST_CASE("elements that are not finite are counted exactly, by source and in the result") {
  Aligned<float> a(kNumel), b(kNumel), c(kNumel), out(kNumel);
  a[0] = kNaN;                        // alone
  b[kTileElems] = kInfinity;          // first of its tile
  c[kTileElems] = -kInfinity;         // the sum of both is NaN
  b[kNumel - 1] = -kInfinity;         // last of the tail
  for (std::size_t i = 100; i < 120; ++i) c[i] = kNaN;
  const std::array<const void*, 3> sources = {a.data(), b.data(), c.data()};
  for (const unsigned threads : {1U, 2U, 3U}) {
    HostReducer reducer(threads);
    const SumStats stats = sum_one(reducer, {DType::f32, kNumel, sources, {}, 1, out.data()});
    CHECK(stats.nonfinite_by_source == Counts{1, 2, 21});
    CHECK(stats.nonfinite_result == 23);
    CHECK(same_bits(stats.sum_of_squares, std::bit_cast<double>(kF64NaN)));
  }
}

TEST_CASE("a finite run reports no counts at all") {
  Aligned<float> a(kNumel), out(kNumel);
  const std::array<const void*, 1> sources = {a.data()};
  HostReducer reducer(1);
  const SumStats stats = sum_one(reducer, {DType::f32, kNumel, sources, {}, 1, out.data()});
  CHECK(stats.nonfinite_by_source.empty());
  CHECK(stats.nonfinite_result == 0);
}

TEST_CASE("f64 squares that overflow are no reason to call finite values non-finite") {
  Aligned<double> a{1e200, -1e200, 0};
  Aligned<double> out(3);
  const std::array<const void*, 1> sources = {a.data()};
  HostReducer reducer(1);
  const SumStats stats = sum_one(reducer, {DType::f64, 3, sources, {}, 1, out.data()});
  CHECK(stats.sum_of_squares == std::numeric_limits<double>::infinity());
  CHECK(stats.nonfinite_result == 0);
  CHECK(stats.nonfinite_by_source.empty());
}

TEST_CASE("an f16 sum that overflows counts in the result and at no source") {
  Aligned<std::uint16_t> a{0x7bff, 0x3c00};
  Aligned<std::uint16_t> b{0x7bff, 0x3c00};
  Aligned<std::uint16_t> out(2);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  HostReducer reducer(1);
  const SumStats stats = sum_one(reducer, {DType::f16, 2, sources, {}, 1, out.data()});
  CHECK(out[0] == 0x7c00);
  CHECK(out[1] == 0x4000);
  CHECK(stats.nonfinite_result == 1);
  CHECK(stats.nonfinite_by_source.empty());
}

TEST_CASE("an infinite source is found even where its weight is zero or the divisor infinite") {
  Aligned<float> a{1, kInfinity, 1};
  Aligned<float> b{1, 1, 1};
  Aligned<float> out(3);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  const std::array<double, 2> weights = {1e-60, 2};  // the first one rounds to 0 in f32
  HostReducer reducer(1);
  for (const double divisor : {1.0, double{kInfinity}}) {
    const SumStats stats = sum_one(reducer, {DType::f32, 3, sources, weights, divisor, out.data()});
    CHECK(stats.nonfinite_by_source == Counts{1, 0});
    CHECK(stats.nonfinite_result == 1);
    CHECK(std::bit_cast<std::uint32_t>(out[1]) == kF32NaN);
  }
}

TEST_CASE("a NaN weight or a zero divisor makes results non-finite without accusing a source") {
  Aligned<float> a{1, 2, 3};
  Aligned<float> out(3);
  const std::array<const void*, 1> sources = {a.data()};
  const std::array<double, 1> weights = {double{kNaN}};
  HostReducer reducer(1);
  CHECK(sum_one(reducer, {DType::f32, 3, sources, weights, 1, out.data()}).nonfinite_result == 3);
  const SumStats stats = sum_one(reducer, {DType::f32, 3, sources, {}, 0, out.data()});
  CHECK(stats.nonfinite_result == 3);
  CHECK(stats.nonfinite_by_source.empty());
}

}  // namespace
}  // namespace gradshm::core::test
