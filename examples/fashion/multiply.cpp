#include "multiply.hpp"

#include <algorithm>

namespace fashion {
namespace {

constexpr std::size_t kDepth = 16;  // rows of b that are used together; with 256 columns they fill half of a 32 KiB L1

// c[j] += sum of a[l] * b[l][j] over four l: four times fewer loads and stores of c than one l at a time.
[[gnu::always_inline]] inline void add_four(std::size_t n, const float (&a)[4], const float* b, float* __restrict c) {
  const float* b1 = b + n;
  const float* b2 = b1 + n;
  const float* b3 = b2 + n;
  for (std::size_t j = 0; j < n; ++j) c[j] = (((c[j] + a[0] * b[j]) + a[1] * b1[j]) + a[2] * b2[j]) + a[3] * b3[j];
}

[[gnu::always_inline]] inline void add_one(std::size_t n, float a, const float* b, float* __restrict c) {
  for (std::size_t j = 0; j < n; ++j) c[j] += a * b[j];
}

[[gnu::always_inline]] inline void add_row(std::size_t n, std::size_t begin, std::size_t end, const float* a, std::size_t stride,
                                           const float* b, float* c) {
  std::size_t l = begin;
  for (; l + 4 <= end; l += 4) {
    const float four[4] = {a[l * stride], a[(l + 1) * stride], a[(l + 2) * stride], a[(l + 3) * stride]};
    add_four(n, four, b + l * n, c);
  }
  for (; l < end; ++l) add_one(n, a[l * stride], b + l * n, c);
}

[[gnu::always_inline]] inline void multiply_add_loops(std::size_t m, std::size_t n, std::size_t k, Strided a, const float* b, float* c) {
  for (std::size_t l = 0; l < k; l += kDepth)
    for (std::size_t i = 0; i < m; ++i) add_row(n, l, std::min(l + kDepth, k), a.data + i * a.row, a.column, b, c + i * n);
}

#if defined(__x86_64__)
// Not target_clones: its resolver runs before the sanitizers are set up.
[[gnu::target("avx2")]] void multiply_add_avx2(std::size_t m, std::size_t n, std::size_t k, Strided a, const float* b, float* c) {
  multiply_add_loops(m, n, k, a, b, c);
}
#endif

}  // namespace

void multiply_add(std::size_t m, std::size_t n, std::size_t k, Strided a, const float* b, float* c) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return multiply_add_avx2(m, n, k, a, b, c);
#endif
  multiply_add_loops(m, n, k, a, b, c);
}

}  // namespace fashion
