// What reader and writer of TSV share. Inside this layer only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradshm::core {

// Without its line end. numel: of all parameters; nullopt if that does not fit 64 bits.
[[nodiscard]] std::string tsv_total_line(std::size_t parameters, std::optional<std::uint64_t> numel);

}  // namespace gradshm::core
