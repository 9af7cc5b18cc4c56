// Order statistics of a sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace gradshm::bench {

// The smallest sample that `percent` of all samples do not exceed. The sample is not empty.
template <class Number>
Number percentile(std::vector<Number> sample, double percent) {
  std::sort(sample.begin(), sample.end());
  const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(sample.size())));
  return sample[rank == 0 ? 0 : rank - 1];
}

template <class Number>
Number median(const std::vector<Number>& sample) {
  return percentile(sample, 50);
}

}  // namespace gradshm::bench
