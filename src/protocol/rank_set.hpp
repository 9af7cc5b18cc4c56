// A set of ranks 0 to 255.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memory/shared.hpp"

namespace gradshm::core {

class RankSet {
 public:
  void insert(unsigned rank) noexcept { words_[rank / 64] |= bit(rank); }
  void erase(unsigned rank) noexcept { words_[rank / 64] &= ~bit(rank); }
  void clear() noexcept { words_ = {}; }
  [[nodiscard]] bool contains(unsigned rank) const noexcept { return (words_[rank / 64] & bit(rank)) != 0; }
  [[nodiscard]] bool empty() const noexcept { return *this == RankSet(); }
  [[nodiscard]] unsigned size() const noexcept {
    unsigned count = 0;
    for (const std::uint64_t word : words_) count += static_cast<unsigned>(std::popcount(word));
    return count;
  }
  [[nodiscard]] bool includes(const RankSet& other) const noexcept {
    for (std::size_t i = 0; i < kRankWords; ++i)
      if ((other.words_[i] & ~words_[i]) != 0) return false;
    return true;
  }
  void insert_all(const RankSet& other) noexcept {
    for (std::size_t i = 0; i < kRankWords; ++i) words_[i] |= other.words_[i];
  }
  // In rank order.
  template <class Function>
  void for_each(Function&& visit) const {
    for (unsigned i = 0; i < kRankWords; ++i)
      for (std::uint64_t left = words_[i]; left != 0; left &= left - 1) visit(i * 64 + static_cast<unsigned>(std::countr_zero(left)));
  }
  [[nodiscard]] const std::array<std::uint64_t, kRankWords>& words() const noexcept { return words_; }
  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  static std::uint64_t bit(unsigned rank) noexcept { return std::uint64_t{1} << (rank % 64); }
  std::array<std::uint64_t, kRankWords> words_{};
};

}  // namespace gradshm::core
