// The oracle: as plain as it can be, and independent of the fast kernels. Slow on purpose.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "reduce/half.hpp"
#include "reduce/reduce.hpp"

#ifdef __FAST_MATH__
#error "fast-math changes the bits of a sum"
#endif

namespace gradshm::core {
namespace {

struct F32 {
  using Stored = float;
  using Accumulator = float;
  static float decode(float stored) { return stored; }
  static float encode(float value) { return std::isnan(value) ? std::bit_cast<float>(kF32NaN) : value; }
};

struct F64 {
  using Stored = double;
  using Accumulator = double;
  static double decode(double stored) { return stored; }
  static double encode(double value) { return std::isnan(value) ? std::bit_cast<double>(kF64NaN) : value; }
};

struct F16 {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static float decode(std::uint16_t stored) { return f32_of_f16(stored); }
  static std::uint16_t encode(float value) { return f16_of_f32(value); }
};

struct Bf16 {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static float decode(std::uint16_t stored) { return f32_of_bf16(stored); }
  static std::uint16_t encode(float value) { return bf16_of_f32(value); }
};

template <class Format>
typename Format::Accumulator source_value(const SumRun& run, std::size_t source, std::uint64_t element) {
  return Format::decode(static_cast<const typename Format::Stored*>(run.sources[source])[element]);
}

template <class Format>
typename Format::Stored sum_element(const SumRun& run, std::uint64_t element) {
  using Accumulator = typename Format::Accumulator;
  Accumulator sum = 0;
  for (std::size_t source = 0; source < run.sources.size(); ++source) {
    Accumulator term = source_value<Format>(run, source, element);
    if (!run.weights.empty()) term = static_cast<Accumulator>(run.weights[source]) * term;
    sum = source == 0 ? term : sum + term;
  }
  if (run.divisor != 1) sum = sum / static_cast<Accumulator>(run.divisor);
  return Format::encode(sum);
}

double fold(std::array<double, 16> lanes) {
  for (std::size_t width = 8; width != 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <class Format>
double sum_of_squares(const typename Format::Stored* out, std::uint64_t numel) {
  double total = 0;
  std::array<double, 16> lanes{};
  for (std::uint64_t i = 0; i < numel; ++i) {
    const double value = Format::decode(out[i]);
    lanes[i % 16] += value * value;
    if (i % kTileElems == kTileElems - 1 || i == numel - 1) {
      total += fold(lanes);
      lanes.fill(0);
    }
  }
  return std::isnan(total) ? std::bit_cast<double>(kF64NaN) : total;
}

template <class Format>
std::vector<std::uint64_t> nonfinite_by_source(const SumRun& run) {
  std::vector<std::uint64_t> counts(run.sources.size());
  std::uint64_t total = 0;
  for (std::size_t source = 0; source < run.sources.size(); ++source) {
    for (std::uint64_t i = 0; i < run.numel; ++i) counts[source] += std::isfinite(source_value<Format>(run, source, i)) ? 0 : 1;
    total += counts[source];
  }
  if (total == 0) counts.clear();
  return counts;
}

template <class Format>
SumStats sum_run(const SumRun& run) {
  auto* out = static_cast<typename Format::Stored*>(run.out);
  SumStats stats;
  for (std::uint64_t i = 0; i < run.numel; ++i) {
    out[i] = sum_element<Format>(run, i);
    stats.nonfinite_result += std::isfinite(Format::decode(out[i])) ? 0 : 1;
  }
  stats.sum_of_squares = sum_of_squares<Format>(out, run.numel);
  stats.nonfinite_by_source = nonfinite_by_source<Format>(run);
  return stats;
}

}  // namespace

SumStats reference_sum(const SumRun& run) {
  if (run.sources.empty()) {
    if (run.numel != 0) std::memset(run.out, 0, run.numel * element_bytes(run.dtype));
    return {};
  }
  switch (run.dtype) {
    case DType::f32: return sum_run<F32>(run);
    case DType::f64: return sum_run<F64>(run);
    case DType::f16: return sum_run<F16>(run);
    case DType::bf16: return sum_run<Bf16>(run);
  }
  __builtin_unreachable();
}

}  // namespace gradshm::core
