// A data set without files: noise with a bright square whose place is the label, so that there is something to learn.
#pragma once

#include "fashion/idx.hpp"
#include "fashion/random.hpp"

#include <cstdint>
#include <numeric>
#include <vector>

inline fashion::Dataset made_up_data(std::size_t samples, std::uint64_t seed = 7) {
  fashion::Random random(seed);
  fashion::Dataset data;
  for (std::size_t i = 0; i < samples; ++i) {
    const std::uint32_t label = random.below(fashion::kClasses);
    for (std::size_t p = 0; p < fashion::kPixels; ++p) {
      const bool bright = p / 28 / 14 == label / 5 && p % 28 / 5 == label % 5;
      data.images.push_back(static_cast<std::uint8_t>(random.below(128) + (bright ? 127 : 0)));
    }
    data.labels.push_back(static_cast<std::uint8_t>(label));
  }
  return data;
}

inline std::vector<std::uint32_t> all_samples(const fashion::Dataset& data) {
  std::vector<std::uint32_t> samples(data.size());
  std::iota(samples.begin(), samples.end(), 0u);
  return samples;
}
