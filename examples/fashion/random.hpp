// Random numbers with the same bits on every machine and library; the std:: distributions promise that nowhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace fashion {

// SplitMix64: one multiply-and-shift chain per number, any seed is a good seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t bits() noexcept {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  // In [0, bound); the bias is below bound / 2^32.
  std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>(((bits() >> 32) * bound) >> 32);
  }
  // In [-limit, limit), on a grid of 2^24 steps, so that the conversion to float is exact.
  float symmetric(float limit) noexcept {
    const auto step = static_cast<std::int32_t>(bits() >> 40) - (1 << 23);
    return static_cast<float>(step) * (limit / static_cast<float>(1 << 23));
  }

 private:
  std::uint64_t state_;
};

// Fisher-Yates.
template <class T>
void shuffle(std::span<T> items, Random& random) noexcept {
  for (std::size_t left = items.size(); left > 1; --left)
    std::swap(items[left - 1], items[random.below(static_cast<std::uint32_t>(left))]);
}

}  // namespace fashion
