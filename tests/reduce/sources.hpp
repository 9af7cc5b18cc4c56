// Inputs for the reduce tests: guarded memory, nasty values, and results compared byte by byte.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "reduce/half.hpp"
#include "reduce/reduce.hpp"

namespace gradshm::core::test {

inline constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// Zeroed memory whose last byte is the last one before a page that can't be touched; so it is aligned to its elements only.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t whole = (bytes + page - 1) / page * page;
    mapped_ = whole + page;
    void* at = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    base_ = static_cast<std::byte*>(at);
    if (::mprotect(base_ + whole, page, PROT_NONE) != 0) throw std::runtime_error("mprotect");
    data_ = base_ + whole - bytes;
  }
  ~GuardedBytes() { ::munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

// Memory aligned to 64 bytes, with elements of one type.
template <class T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(std::size_t count) : count_(count), lines_(count * sizeof(T) / 64 + 1) {}
  Aligned(std::initializer_list<T> values) : Aligned(values.size()) { std::copy(values.begin(), values.end(), data()); }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(lines_.data()); }
  [[nodiscard]] const T* data() const { return reinterpret_cast<const T*>(lines_.data()); }
  [[nodiscard]] std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64] = {};
  };
  std::size_t count_ = 0;
  std::vector<Line> lines_;
};

// Bits of elements of `dtype`: zeros, denormals, ties, huge ones, infinities,
// NaNs of both signs, quiet and signalling, with payloads.
[[nodiscard]] inline std::vector<std::uint64_t> special_bits(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {0, 0x8000000000000000, 1, 0x800fffffffffffff, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
              0x7ff0000000000001, 0xfff8000000000123, 0x7ff8000000000000, 0x5fefffffffffffff, 0x3ff0000000000001};
    case DType::f32:
      return {0, 0x80000000, 1, 0x807fffff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffc00123, 0x7fc00000, 0x3f800001, 0x4cbebc20};
    case DType::f16: return {0, 0x8000, 1, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0xfe23, 0x7e00, 0x3c01, 0x0401, 0xfbff};
    case DType::bf16: return {0, 0x8000, 1, 0x807f, 0x7f7f, 0x7f80, 0xff80, 0x7f81, 0xffc3, 0x7fc0, 0x3f81, 0x0081, 0xff7f};
  }
  return {};
}

inline void put(DType dtype, void* data, std::size_t element, std::uint64_t bits) {
  const std::size_t bytes = element_bytes(dtype);
  std::memcpy(static_cast<std::byte*>(data) + element * bytes, &bits, bytes);  // little-endian, as the ABI is
}

// An ordinary number, of a magnitude that makes sums round.
[[nodiscard]] inline std::uint64_t ordinary_bits(DType dtype, std::mt19937_64& random) {
  const double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), static_cast<int>(random() % 24) - 75);
  switch (dtype) {
    case DType::f64: return std::bit_cast<std::uint64_t>(value);
    case DType::f32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16: return f16_of_f32(static_cast<float>(value));
    case DType::bf16: return bf16_of_f32(static_cast<float>(value));
  }
  return 0;
}

// One in `one_in` elements is special.
inline void fill(DType dtype, void* data, std::size_t numel, std::uint64_t seed, std::uint64_t one_in) {
  std::mt19937_64 random(seed);
  const std::vector<std::uint64_t> special = special_bits(dtype);
  for (std::size_t i = 0; i < numel; ++i) {
    const bool pick = random() % one_in == 0;
    put(dtype, data, i, pick ? special[random() % special.size()] : ordinary_bits(dtype, random));
  }
}

[[nodiscard]] inline bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

// "" or what differs, for a message.
[[nodiscard]] inline std::string difference(const SumStats& want, const SumStats& got) {
  if (!same_bits(want.sum_of_squares, got.sum_of_squares)) {
    return "sum of squares " + std::to_string(want.sum_of_squares) + " != " + std::to_string(got.sum_of_squares);
  }
  if (want.nonfinite_result != got.nonfinite_result) {
    return "non-finite results " + std::to_string(want.nonfinite_result) + " != " + std::to_string(got.nonfinite_result);
  }
  return want.nonfinite_by_source == got.nonfinite_by_source ? "" : "non-finite counts by source";
}

[[nodiscard]] inline std::string difference(const void* want, const void* got, DType dtype, std::size_t numel) {
  const std::size_t bytes = element_bytes(dtype);
  if (numel == 0 || std::memcmp(want, got, numel * bytes) == 0) return "";
  std::size_t i = 0;
  while (std::memcmp(static_cast<const std::byte*>(want) + i * bytes, static_cast<const std::byte*>(got) + i * bytes, bytes) == 0) ++i;
  return "element " + std::to_string(i) + " of " + std::to_string(numel);
}

[[nodiscard]] inline SumStats sum_one(HostReducer& reducer, const SumRun& run) {
  SumStats stats;
  reducer.sum({&run, 1}, {&stats, 1});
  return stats;
}

// The best target again when the test is over.
class TargetGuard {
 public:
  TargetGuard() = default;
  ~TargetGuard() { force_simd_target(""); }
  TargetGuard(const TargetGuard&) = delete;
  TargetGuard& operator=(const TargetGuard&) = delete;
};

}  // namespace gradshm::core::test
