// One block of kBlockElems at a time: sum it in registers and round it into a buffer in L1, send the buffer out, square the buffer.
//
// Never a fused multiply-add: hn::MulAdd must not appear here, and the file is built with -ffp-contract=off, because g++ contracts
// hn::Mul + hn::Add on AVX2. The test "every SIMD target gives the bits of the reference" goes red without it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/host_kernels.cpp"
#include <hwy/foreach_target.h>
// Above must come first; below is included once per target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "reduce/host_kernels.hpp"
#include "reduce/lanes-inl.hpp"

#ifdef __FAST_MATH__
#error "fast-math changes the bits of a sum"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

HWY_BEFORE_NAMESPACE();
namespace gradshm::core {
namespace HWY_NAMESPACE {

// Small enough that the CPU overlaps the squares of one block with the loads of the next (256 measured 10 to 20 % slower).
constexpr std::size_t kBlockElems = 64;
constexpr std::size_t kSquareLanes = 16;
constexpr std::size_t kPrefetchBytes = 2048;
constexpr std::size_t kLineBytes = 64;
static_assert(kTileElems % kBlockElems == 0 && kBlockElems % kSquareLanes == 0);

// Of no more lanes than give four vectors a block.
template <class Format>
using AccumulatorTag = hn::CappedTag<typename Format::Accumulator, kBlockElems / 4>;

template <class Format>
constexpr bool kIsF32 = std::is_same_v<typename Format::Accumulator, float>;

// Where a source's elements [first, first + count) can be read in whole vectors: in place, or copied to `padded`.
template <class Format, bool kPartial>
HWY_INLINE const typename Format::Stored* readable(const void* source, std::uint64_t first, std::size_t count,
                                                   typename Format::Stored* padded) {
  const auto* from = static_cast<const typename Format::Stored*>(source) + first;
  if constexpr (!kPartial) {
    // May reach beyond the source: a prefetch never faults.
    const auto* ahead = reinterpret_cast<const char*>(from) + kPrefetchBytes;
    for (std::size_t i = 0; i < count * sizeof(*from); i += kLineBytes) hwy::Prefetch(ahead + i);
    return from;
  }
  std::memcpy(padded, from, count * sizeof(*padded));
  return padded;
}

template <class Format, bool kWeighted, class D>
HWY_INLINE hn::Vec<D> term(D d, const typename Format::Stored* from, hn::Vec<D> weight) {
  if constexpr (kWeighted) return hn::Mul(weight, Format::decode(d, from));
  return Format::decode(d, from);
}

// Four vectors of the result at once: four chains of adds hide the latency of one.
template <class Format, bool kWeighted, bool kPartial>
HWY_INLINE void sum_group(const SumRun& run, std::uint64_t first, std::size_t count, typename Format::Stored* to) {
  using Accumulator = typename Format::Accumulator;
  const AccumulatorTag<Format> d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN typename Format::Stored padded[kPartial ? kBlockElems : 1] = {};
  const std::size_t sources = run.sources.size();
  auto weight = hn::Set(d, kWeighted ? static_cast<Accumulator>(run.weights[0]) : Accumulator{1});
  const auto* from = readable<Format, kPartial>(run.sources[0], first, count, padded);
  auto sum0 = term<Format, kWeighted>(d, from, weight);
  auto sum1 = term<Format, kWeighted>(d, from + lanes, weight);
  auto sum2 = term<Format, kWeighted>(d, from + 2 * lanes, weight);
  auto sum3 = term<Format, kWeighted>(d, from + 3 * lanes, weight);
  for (std::size_t source = 1; source < sources; ++source) {
    if constexpr (kWeighted) weight = hn::Set(d, static_cast<Accumulator>(run.weights[source]));
    from = readable<Format, kPartial>(run.sources[source], first, count, padded);
    sum0 = hn::Add(sum0, term<Format, kWeighted>(d, from, weight));
    sum1 = hn::Add(sum1, term<Format, kWeighted>(d, from + lanes, weight));
    sum2 = hn::Add(sum2, term<Format, kWeighted>(d, from + 2 * lanes, weight));
    sum3 = hn::Add(sum3, term<Format, kWeighted>(d, from + 3 * lanes, weight));
  }
  if (run.divisor != 1) {
    const auto divisor = hn::Set(d, static_cast<Accumulator>(run.divisor));
    sum0 = hn::Div(sum0, divisor);
    sum1 = hn::Div(sum1, divisor);
    sum2 = hn::Div(sum2, divisor);
    sum3 = hn::Div(sum3, divisor);
  }
  Format::encode(d, sum0, to);
  Format::encode(d, sum1, to + lanes);
  Format::encode(d, sum2, to + 2 * lanes);
  Format::encode(d, sum3, to + 3 * lanes);
}

// Pads the block with zeros, which add nothing to the squares.
template <class Format, bool kWeighted>
HWY_INLINE void sum_block(const SumRun& run, std::uint64_t first, std::size_t count, typename Format::Stored* block) {
  const std::size_t group = 4 * hn::Lanes(AccumulatorTag<Format>());
  std::size_t done = 0;
  for (; done + group <= count; done += group) sum_group<Format, kWeighted, false>(run, first + done, group, block + done);
  if (done == kBlockElems) return;
  if (done < count) sum_group<Format, kWeighted, true>(run, first + done, count - done, block + done);
  std::fill(block + count, block + kBlockElems, typename Format::Stored{});
}

template <class Stored>
HWY_INLINE void send(const Stored* block, std::size_t count, Stores stores, Stored* out) {
  const hn::CappedTag<Stored, kBlockElems> d;
  if (count < kBlockElems || stores == Stores::cached) {
    std::memcpy(out, block, count * sizeof(Stored));
    return;
  }
  for (std::size_t i = 0; i < kBlockElems; i += hn::Lanes(d)) hn::Stream(hn::Load(d, block + i), d, out + i);
}

// A vector of f64 squares of the stored values.
template <class Format, class D>
HWY_INLINE hn::Vec<D> squares_of(D d, const typename Format::Stored* from) {
  if constexpr (kIsF32<Format>) {
    const auto value = hn::PromoteTo(d, Format::decode(hn::Rebind<float, D>(), from));
    return hn::Mul(value, value);
  } else {
    const auto value = Format::decode(d, from);
    return hn::Mul(value, value);
  }
}

template <class Format>
HWY_INLINE void add_squares(const typename Format::Stored* block, double* lane_sums) {
  const hn::CappedTag<double, kSquareLanes / 2> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t lane = 0; lane < kSquareLanes; lane += 2 * lanes) {
    auto sum0 = hn::Load(d, lane_sums + lane);
    auto sum1 = hn::Load(d, lane_sums + lane + lanes);
    for (std::size_t i = lane; i < kBlockElems; i += kSquareLanes) {
      sum0 = hn::Add(sum0, squares_of<Format>(d, block + i));
      sum1 = hn::Add(sum1, squares_of<Format>(d, block + i + lanes));
    }
    hn::Store(sum0, d, lane_sums + lane);
    hn::Store(sum1, d, lane_sums + lane + lanes);
  }
}

HWY_INLINE double fold(double* lane_sums) {
  for (std::size_t width = kSquareLanes / 2; width != 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lane_sums[lane] += lane_sums[lane + width];
  }
  return lane_sums[0];
}

template <class Format, bool kWeighted>
double sum_tile(const SumRun& run, Stores stores, std::uint64_t first, std::uint64_t count) {
  HWY_ALIGN typename Format::Stored block[kBlockElems];
  HWY_ALIGN double lane_sums[kSquareLanes] = {};
  auto* out = static_cast<typename Format::Stored*>(run.out) + first;
  for (std::uint64_t done = 0; done < count; done += kBlockElems) {
    const auto elems = static_cast<std::size_t>(std::min<std::uint64_t>(kBlockElems, count - done));
    sum_block<Format, kWeighted>(run, first + done, elems, block);
    send(block, elems, stores, out + done);
    add_squares<Format>(block, lane_sums);
  }
  return fold(lane_sums);
}

template <class Format>
void sum_tiles_as(const SumRun& run, Stores stores, std::uint64_t first_tile, std::uint64_t tiles, double* tile_squares) {
  bool weighted = false;
  for (const double weight : run.weights) weighted |= weight != 1;
  for (std::uint64_t tile = 0; tile < tiles; ++tile) {
    const std::uint64_t first = (first_tile + tile) * kTileElems;
    const std::uint64_t count = std::min(kTileElems, run.numel - first);
    tile_squares[tile] = weighted ? sum_tile<Format, true>(run, stores, first, count) : sum_tile<Format, false>(run, stores, first, count);
  }
}

void sum_tiles(const SumRun& run, Stores stores, std::uint64_t first_tile, std::uint64_t tiles, double* tile_squares) {
  switch (run.dtype) {
    case DType::f32: return sum_tiles_as<Plain<float>>(run, stores, first_tile, tiles, tile_squares);
    case DType::f64: return sum_tiles_as<Plain<double>>(run, stores, first_tile, tiles, tile_squares);
    case DType::f16: return sum_tiles_as<F16>(run, stores, first_tile, tiles, tile_squares);
    case DType::bf16: return sum_tiles_as<Bf16>(run, stores, first_tile, tiles, tile_squares);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gradshm::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradshm::core {
namespace {

HWY_EXPORT(sum_tiles);

// HWY_DYNAMIC_DISPATCH takes its entry by one process-wide mask; ours is taken by target, so that forcing one forces nothing else.
SumTiles kernel_of(std::int64_t target) noexcept {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  constexpr bool kOnlyOne = std::extent_v<decltype(HWY_DISPATCH_TABLE(sum_tiles))> == 1;
  return HWY_DISPATCH_TABLE(sum_tiles)[kOnlyOne ? 0 : chosen.GetIndex()];
}

// Best first. The static target is what the compiler may use anywhere, so the CPU has it.
std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> found = hwy::SupportedAndGeneratedTargets();
  std::erase(found, HWY_STATIC_TARGET);
  found.push_back(HWY_STATIC_TARGET);
  return found;
}

std::atomic<std::int64_t>& target_in_use() {
  static std::atomic<std::int64_t> target{targets().front()};
  return target;
}

}  // namespace

// order: relaxed, here and below. The word selects one of several functions that give the same bits; nothing is published with it.
SumTiles sum_tiles_in_use() noexcept { return kernel_of(target_in_use().load(std::memory_order_relaxed)); }

// order: relaxed, as above.
std::string simd_target_in_use() { return hwy::TargetName(target_in_use().load(std::memory_order_relaxed)); }

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

bool force_simd_target(const std::string& name) {
  for (const std::int64_t target : targets()) {
    if (!name.empty() && name != hwy::TargetName(target)) continue;
    target_in_use().store(target, std::memory_order_relaxed);  // order: relaxed, as above
    return true;
  }
  return false;
}

}  // namespace gradshm::core
#endif  // HWY_ONCE
