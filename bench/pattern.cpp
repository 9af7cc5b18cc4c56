#include "pattern.hpp"

#include <gradshm/gradshm.h>

#include <bit>
#include <cstring>

#include "reduce/half.hpp"

namespace gradshm::bench {
namespace {

std::uint64_t bits_of(int dtype, float value) {
  switch (dtype) {
    case GRADSHM_F64: return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    case GRADSHM_F16: return core::f16_of_f32(value);
    case GRADSHM_BF16: return core::bf16_of_f32(value);
    default: return std::bit_cast<std::uint32_t>(value);
  }
}

// splitmix64's finisher: near arguments give unrelated numbers, so a stale or misplaced element shows.
std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Pattern::Pattern(unsigned workers, int dtype) : workers_(workers), size_(gradshm_dtype_size(dtype)) {
  for (unsigned value = 0; value < bits_.size(); ++value) bits_[value] = bits_of(dtype, static_cast<float>(value));
}

unsigned Pattern::value(unsigned worker, std::uint64_t element, std::uint64_t round) const noexcept {
  const std::uint64_t values = kLargestSum / workers_ + 1;
  return static_cast<unsigned>(mix(mix(element + 1) + (round << 16) + worker) % values);
}

unsigned Pattern::sum(std::uint64_t element, std::uint64_t round) const noexcept {
  unsigned sum = 0;
  for (unsigned worker = 0; worker < workers_; ++worker) sum += value(worker, element, round);
  return sum;
}

void Pattern::store(void* data, std::size_t index, unsigned value) const noexcept {
  std::memcpy(static_cast<std::byte*>(data) + index * size_, &bits_[value], size_);
}

bool Pattern::holds(const void* data, std::size_t index, unsigned value) const noexcept {
  return std::memcmp(static_cast<const std::byte*>(data) + index * size_, &bits_[value], size_) == 0;
}

}  // namespace gradshm::bench
