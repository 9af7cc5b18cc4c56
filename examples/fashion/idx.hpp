// Fashion-MNIST as Debian's dataset-fashion-mnist ships it: gzip files in the IDX format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fashion {

inline constexpr std::size_t kPixels = 28 * 28;
inline constexpr std::size_t kClasses = 10;

struct Dataset {
  std::vector<std::uint8_t> images;  // kPixels each, row-major
  std::vector<std::uint8_t> labels;  // below kClasses
  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

// Both throw std::runtime_error with a sentence that names the file.
[[nodiscard]] std::vector<std::uint8_t> read_images(const std::string& path);
[[nodiscard]] std::vector<std::uint8_t> read_labels(const std::string& path);

// stem: "train" (60,000 samples) or "t10k" (10,000).
[[nodiscard]] Dataset load_dataset(const std::string& directory, const std::string& stem);

}  // namespace fashion
