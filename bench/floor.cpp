#include "floor.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/clock.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradshm::bench {
namespace {

constexpr std::size_t kStepFloats = 64;  // everything is a multiple of it, so no kernel needs a tail
constexpr std::size_t kChunkFloats = 16384;
constexpr unsigned kMaxUnrolled = 16;

using Kernel = void (*)(float* const* inputs, unsigned arrays, float* output, std::size_t begin, std::size_t end);

// Arrays: known when compiled, so that the loop over the inputs is unrolled; 0 where there are more than that pays for.
#if defined(__x86_64__)
template <unsigned Arrays>
__attribute__((target("avx2"))) void sum_avx2(float* const* inputs, unsigned arrays, float* output, std::size_t begin,
                                              std::size_t end) {
  const unsigned count = Arrays ? Arrays : arrays;
  for (std::size_t i = begin; i < end; i += 16) {
    __m256 low = _mm256_load_ps(inputs[0] + i), high = _mm256_load_ps(inputs[0] + i + 8);
    for (unsigned w = 1; w < count; ++w) {
      low = _mm256_add_ps(low, _mm256_load_ps(inputs[w] + i));
      high = _mm256_add_ps(high, _mm256_load_ps(inputs[w] + i + 8));
    }
    _mm256_stream_ps(output + i, low);
    _mm256_stream_ps(output + i + 8, high);
  }
  _mm_sfence();
}

template <unsigned Arrays>
void sum_baseline(float* const* inputs, unsigned arrays, float* output, std::size_t begin, std::size_t end) {
  const unsigned count = Arrays ? Arrays : arrays;
  for (std::size_t i = begin; i < end; i += 4) {
    __m128 sum = _mm_load_ps(inputs[0] + i);
    for (unsigned w = 1; w < count; ++w) sum = _mm_add_ps(sum, _mm_load_ps(inputs[w] + i));
    _mm_stream_ps(output + i, sum);
  }
  _mm_sfence();
}

template <unsigned Arrays>
Kernel pick() {
  return __builtin_cpu_supports("avx2") ? &sum_avx2<Arrays> : &sum_baseline<Arrays>;
}
#else
template <unsigned Arrays>
void sum_baseline(float* const* inputs, unsigned arrays, float* output, std::size_t begin, std::size_t end) {
  const unsigned count = Arrays ? Arrays : arrays;
  for (std::size_t i = begin; i < end; ++i) {
    float sum = inputs[0][i];
    for (unsigned w = 1; w < count; ++w) sum += inputs[w][i];
    output[i] = sum;
  }
}

template <unsigned Arrays>
Kernel pick() {
  return &sum_baseline<Arrays>;
}
#endif

template <unsigned... Arrays>
Kernel kernel_for(unsigned arrays, std::integer_sequence<unsigned, Arrays...>) {
  const std::array<Kernel, sizeof...(Arrays)> kernels{pick<Arrays>()...};
  return kernels[arrays < kernels.size() ? arrays : 0];
}

Kernel kernel_for(unsigned arrays) { return kernel_for(arrays, std::make_integer_sequence<unsigned, kMaxUnrolled + 1>{}); }

// Of the same kind as the slots: shared memory, its pages taken before anything is timed.
float* resident(std::size_t floats) {
  void* memory = mmap(nullptr, floats * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap for the memory floor");
  return static_cast<float*>(memory);
}

}  // namespace

Floor::Floor(unsigned arrays, std::size_t bytes, unsigned threads)
    : floats_((bytes / sizeof(float) + kStepFloats) / kStepFloats * kStepFloats),
      output_(resident(floats_)),
      gate_(static_cast<std::ptrdiff_t>(threads)) {
  for (unsigned w = 0; w < arrays; ++w) {
    inputs_.push_back(resident(floats_));
    for (std::size_t i = 0; i < floats_; ++i) inputs_[w][i] = static_cast<float>(w) + 1e-7F * static_cast<float>(i);
  }
  for (unsigned thread = 1; thread < threads; ++thread) pool_.emplace_back(&Floor::serve, this);
}

Floor::~Floor() {
  stop_ = true;
  gate_.arrive_and_wait();
  for (std::thread& thread : pool_) thread.join();
  for (float* input : inputs_) munmap(input, floats_ * sizeof(float));
  munmap(output_, floats_ * sizeof(float));
}

std::vector<std::int64_t> Floor::measure_ns(unsigned times) {
  measure_once_ns();  // the threads sleep before it
  std::vector<std::int64_t> durations(times);
  for (std::int64_t& duration : durations) duration = measure_once_ns();
  return durations;
}

std::int64_t Floor::measure_once_ns() {
  next_.store(0, std::memory_order_relaxed);  // order: relaxed, the gate publishes it
  gate_.arrive_and_wait();
  const std::int64_t start = core::now_ns();
  sum_chunks();
  gate_.arrive_and_wait();
  return core::now_ns() - start;
}

void Floor::serve() {
  for (;;) {
    gate_.arrive_and_wait();
    if (stop_) return;
    sum_chunks();
    gate_.arrive_and_wait();
  }
}

// Chunks are taken, not assigned: on a machine that others use too, a floor with fixed halves would be slower than what it stands under.
void Floor::sum_chunks() {
  static const Kernel kernel = kernel_for(static_cast<unsigned>(inputs_.size()));
  for (;;) {
    const std::size_t begin = next_.fetch_add(kChunkFloats, std::memory_order_relaxed);
    if (begin >= floats_) return;
    kernel(inputs_.data(), static_cast<unsigned>(inputs_.size()), output_, begin, std::min(begin + kChunkFloats, floats_));
  }
}

}  // namespace gradshm::bench
