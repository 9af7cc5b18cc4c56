// A GPU's name for life. Indices are not: they change with CUDA_VISIBLE_DEVICES and between processes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradshm::core::cuda {

struct Uuid {
  std::array<std::uint8_t, 16> bytes{};
  friend auto operator<=>(const Uuid&, const Uuid&) = default;
};

// "GPU-b1fd2ea8-6d6a-4c1e-a7ae-0f6c5e0a9d11", as nvidia-smi prints it.
[[nodiscard]] std::string to_text(const Uuid& uuid);
// Takes capitals too, and "GPU-" may be missing.
[[nodiscard]] std::optional<Uuid> uuid_of(std::string_view text);

}  // namespace gradshm::core::cuda
