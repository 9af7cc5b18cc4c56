// Gradients whose sums are known: small whole numbers, so that the sum over all workers is exact in every dtype and order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradshm::bench {

class Pattern {
 public:
  Pattern(unsigned workers, int dtype);

  // Of one element of one worker in a round; elements that are never rewritten keep round 0.
  [[nodiscard]] unsigned value(unsigned worker, std::uint64_t element, std::uint64_t round) const noexcept;
  [[nodiscard]] unsigned sum(std::uint64_t element, std::uint64_t round) const noexcept;
  void store(void* data, std::size_t index, unsigned value) const noexcept;
  [[nodiscard]] bool holds(const void* data, std::size_t index, unsigned value) const noexcept;

 private:
  static constexpr unsigned kLargestSum = 256;  // bf16 holds every whole number up to it
  unsigned workers_;
  std::size_t size_;
  std::array<std::uint64_t, kLargestSum + 1> bits_;
};

}  // namespace gradshm::bench
