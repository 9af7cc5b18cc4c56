// What does not depend on threads, chunks and the company of other runs.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <array>
#include <cfenv>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "sources.hpp"

namespace gradshm::core::test {
namespace {

// f32 sources enough to need several chunks, and the pool.
struct Large {
  static constexpr std::size_t kNumel = 300007;
  std::array<Aligned<float>, 3> data{Aligned<float>(kNumel), Aligned<float>(kNumel), Aligned<float>(kNumel)};
  std::array<const void*, 3> sources{data[0].data(), data[1].data(), data[2].data()};
  Aligned<float> want = Aligned<float>(kNumel);
  Aligned<float> got = Aligned<float>(kNumel);

  explicit Large(std::uint64_t one_in) {
    for (std::size_t i = 0; i < 3; ++i) fill(DType::f32, data[i].data(), kNumel, i, one_in);
  }
  [[nodiscard]] SumRun run(Aligned<float>& out) const { return {DType::f32, kNumel, sources, {}, 3, out.data()}; }
};

TEST_CASE("any number of threads gives the same result, sum of squares and counts") {
  Large large(10000);
  const SumStats want = reference_sum(large.run(large.want));
  CHECK(want.nonfinite_result > 0);
  for (unsigned threads = 1; threads <= 4; ++threads) {
    HostReducer reducer(threads);
    CHECK(reducer.threads() == threads);
    const SumStats got = sum_one(reducer, large.run(large.got));
    CHECK(difference(want, got) == "");
    CHECK(difference(large.want.data(), large.got.data(), DType::f32, Large::kNumel) == "");
  }
}

TEST_CASE("the finite sum of squares has the same bits for every number of threads and every target") {
  const TargetGuard guard;
  Large large(1U << 31);
  const double want = reference_sum(large.run(large.want)).sum_of_squares;
  CHECK(std::isfinite(want));
  for (const std::string& target : simd_targets()) {
    REQUIRE(force_simd_target(target));
    for (unsigned threads = 1; threads <= 4; ++threads) {
      HostReducer reducer(threads);
      CHECK(same_bits(sum_one(reducer, large.run(large.got)).sum_of_squares, want));
    }
  }
}

TEST_CASE("1e8, 1 and -1e8 are added in rank order whatever the threads and the cut into runs") {
  constexpr std::size_t kNumel = 200000;
  Aligned<float> a(kNumel), b(kNumel), c(kNumel), out(kNumel);
  for (std::size_t i = 0; i < kNumel; ++i) {
    a[i] = i % 2 == 0 ? 1e8F : 1;
    b[i] = i % 2 == 0 ? 1 : 1e8F;
    c[i] = -1e8F;
  }
  for (unsigned threads = 1; threads <= 4; ++threads) {
    HostReducer reducer(threads);
    for (const std::size_t piece : {kNumel, std::size_t{65536}, std::size_t{4096}, std::size_t{1040}, std::size_t{16}}) {
      std::vector<std::array<const void*, 3>> sources;
      std::vector<SumRun> runs;
      sources.reserve(kNumel / piece + 1);
      for (std::size_t at = 0; at < kNumel; at += piece) {
        sources.push_back({a.data() + at, b.data() + at, c.data() + at});
        runs.push_back({DType::f32, std::min(piece, kNumel - at), sources.back(), {}, 1, out.data() + at});
      }
      std::vector<SumStats> stats(runs.size());
      reducer.sum(runs, stats);
      CHECK(std::count(out.data(), out.data() + kNumel, 0.0F) == kNumel);  // (1e8 + 1) - 1e8 and (1 + 1e8) - 1e8: 1 is lost
    }
  }
}

TEST_CASE("runs of different types and sources in one call are independent of one another") {
  constexpr std::size_t kNumel = 50000;
  std::vector<Aligned<std::byte>> inputs, wants, gots;
  for (const DType dtype : kDTypes) {
    inputs.emplace_back(kNumel * element_bytes(dtype));
    wants.emplace_back(kNumel * element_bytes(dtype));
    gots.emplace_back(kNumel * element_bytes(dtype));
    fill(dtype, inputs.back().data(), kNumel, 3, 5000);
  }
  std::vector<std::array<const void*, 2>> sources(4);
  std::vector<SumRun> runs;
  for (std::size_t i = 0; i < 4; ++i) {
    sources[i] = {inputs[i].data(), inputs[i].data()};
    runs.push_back({kDTypes[i], kNumel - i, std::span(sources[i]).first(i % 3), {}, 1.0 + static_cast<double>(i), gots[i].data()});
  }
  std::vector<SumStats> stats(4, SumStats{1, 1, {1}});  // of an earlier call
  HostReducer reducer(2);
  reducer.sum(runs, stats);
  for (std::size_t i = 0; i < 4; ++i) {
    SumRun run = runs[i];
    run.out = wants[i].data();
    CHECK(difference(reference_sum(run), stats[i]) == "");
    CHECK(difference(wants[i].data(), gots[i].data(), run.dtype, run.numel) == "");
  }
}

TEST_CASE("no runs, and runs of no elements, are no work") {
  HostReducer reducer(0);
  CHECK(reducer.threads() >= 1);
  reducer.sum({}, {});
  CHECK(sum_one(reducer, {DType::f32, 0, {}, {}, 1, nullptr}).nonfinite_result == 0);
}

TEST_CASE("bf16 1.0 from 64 sources is 64, and -0 survives") {
  Aligned<std::uint16_t> one{0x3f80, 0x8000}, out(2);
  const std::vector<const void*> sources(64, one.data());
  HostReducer reducer(1);
  CHECK(sum_one(reducer, {DType::bf16, 2, sources, {}, 1, out.data()}).sum_of_squares == 4096);
  CHECK(f32_of_bf16(out[0]) == 64);
  CHECK(out[1] == 0x8000);
}

#ifdef __SSE2__
TEST_CASE("a caller that rounds upwards and flushes denormals to zero gets the same bits") {
  Large large(3);
  const std::uint32_t before = _mm_getcsr();
  for (const std::size_t numel : {std::size_t{1000}, Large::kNumel}) {  // inline, and in the pool
    SumRun run = large.run(large.want);
    run.numel = numel;
    const SumStats want = reference_sum(run);
    run.out = large.got.data();
    HostReducer reducer(2);
    _mm_setcsr(before | 0x8040 | 0x4000);  // FTZ, DAZ, upwards
    const SumStats got = sum_one(reducer, run);
    const std::uint32_t after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK((after & 0xffc0) == ((before | 0x8040 | 0x4000) & 0xffc0));
    CHECK(difference(want, got) == "");
    CHECK(difference(large.want.data(), large.got.data(), DType::f32, numel) == "");
  }
}
#endif

// Any bits as sources, any weights and divisor, any target: the reference's bits.
void check_any_input() {
  const DType dtype = *rc::gen::elementOf(std::vector<DType>(std::begin(kDTypes), std::end(kDTypes)));
  const auto numel = *rc::gen::inRange<std::size_t>(0, 200);
  const auto count = *rc::gen::inRange<std::size_t>(0, 6);
  std::vector<Aligned<std::byte>> data;
  std::vector<const void*> sources;
  std::vector<double> weights;
  const bool weighted = *rc::gen::arbitrary<bool>();
  for (std::size_t i = 0; i < count; ++i) {
    data.emplace_back(numel * element_bytes(dtype));
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    for (std::size_t k = 0; k < numel; ++k) put(dtype, data.back().data(), k, random());
    sources.push_back(data.back().data());
    if (weighted) weights.push_back(*rc::gen::arbitrary<double>());
  }
  Aligned<std::byte> want(numel * 8), got(numel * 8);
  const double divisor = *rc::gen::element(1.0, 3.0, -0.1, 1e30, 0.0);
  SumRun run{dtype, numel, sources, weights, divisor, want.data()};
  const SumStats want_stats = reference_sum(run);
  run.out = got.data();
  HostReducer reducer(1);
  RC_ASSERT(force_simd_target(*rc::gen::elementOf(simd_targets())));
  RC_ASSERT(difference(want_stats, sum_one(reducer, run)) == "");
  RC_ASSERT(difference(want.data(), got.data(), dtype, numel) == "");
}

TEST_CASE("any source bits, weights and divisor give the reference's bits on any target") {
  const TargetGuard guard;
  CHECK(rc::check(check_any_input));
}

// A run cut in two at any multiple of 64 bytes.
void check_any_cut(Large& large, HostReducer& reducer) {
  const auto at = 16 * *rc::gen::inRange<std::size_t>(0, Large::kNumel / 16);
  std::array<const void*, 3> rest{};
  for (std::size_t i = 0; i < 3; ++i) rest[i] = large.data[i].data() + at;
  SumRun head = large.run(large.got);
  head.numel = at;
  const std::array<SumRun, 2> runs = {head, SumRun{DType::f32, Large::kNumel - at, rest, {}, 3, large.got.data() + at}};
  std::array<SumStats, 2> stats;
  std::memset(large.got.data(), 0xa5, Large::kNumel * sizeof(float));
  reducer.sum(runs, stats);
  RC_ASSERT(difference(large.want.data(), large.got.data(), DType::f32, Large::kNumel) == "");
}

TEST_CASE("a run cut in two anywhere gives the same bytes as the whole") {
  Large large(100);
  HostReducer reducer(2);
  (void)reference_sum(large.run(large.want));
  CHECK(rc::check([&] { check_any_cut(large, reducer); }));
}

}  // namespace
}  // namespace gradshm::core::test
