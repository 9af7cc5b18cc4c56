// Summing slots: one interface, and the rules that make its bits the same everywhere.
//
// For every element, in this order: start from the first source (w0 * x0, or x0 where all weights are 1), add the others in the order
// given (product rounded before the add, no fused multiply-add), divide once by `divisor` where it is not 1, round once to nearest
// even. f32, f16 and bf16 accumulate in f32 (weights and divisor rounded to f32 first), f64 in f64. A NaN result is the canonical quiet NaN
// of its dtype (sign 0, only the top mantissa bit set). No source at all: zero bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layout/dtype.hpp"

namespace gradshm::core {

// A run of elements with the same sources throughout. Pointers are 64-byte aligned, and no source overlaps `out`.
struct SumRun {
  DType dtype = DType::f32;
  std::uint64_t numel = 0;
  std::span<const void* const> sources;  // in rank order; may be empty
  std::span<const double> weights;       // one a source; empty = all 1
  double divisor = 1;
  void* out = nullptr;
};

// Of the stored result, per run. Tiles of kTileElems elements, counted from the run's start, each summed in 16 lanes (lane = element
// index mod 16; f64 accumulators; lanes folded 8+8, 4+4, 2+2, 1+1), tiles added in order: the same bits for any thread count and SIMD
// width.
struct SumStats {
  double sum_of_squares = 0;
  std::uint64_t nonfinite_result = 0;                  // elements of the result that are NaN or infinite
  std::vector<std::uint64_t> nonfinite_by_source;      // empty = none anywhere
};

inline constexpr std::uint64_t kTileElems = 4096;

// The specification: scalar, one element after the other, no library. It stays for ever as the oracle of all others.
[[nodiscard]] SumStats reference_sum(const SumRun& run);

// Host reducer: SIMD by Highway with run-time dispatch, non-temporal stores, oneTBB over chunks that fit L2. Whatever thread stored with
// non-temporal stores has executed a store fence before its chunk counts as done. Small work runs inline, without waking the pool.
// Runs of one call are independent; stats[i] belongs to runs[i]. One caller at a time.
class HostReducer {
 public:
  explicit HostReducer(unsigned threads);  // 0 = all CPUs this process may use
  ~HostReducer();
  HostReducer(const HostReducer&) = delete;
  HostReducer& operator=(const HostReducer&) = delete;

  [[nodiscard]] unsigned threads() const noexcept;
  void sum(std::span<const SumRun> runs, std::span<SumStats> stats);

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

// SIMD targets that this CPU has and this build holds, best first ("AVX3", "AVX2", "SSE4", ...), and the one in use.
[[nodiscard]] std::vector<std::string> simd_targets();
[[nodiscard]] std::string simd_target_in_use();
// For tests: use only this target from now on, "" = the best again. False if it is not one of simd_targets().
bool force_simd_target(const std::string& name);

}  // namespace gradshm::core
