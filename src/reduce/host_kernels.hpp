// The SIMD kernel behind HostReducer, one per target.
#pragma once

#include <cstdint>

#include "reduce/reduce.hpp"

namespace gradshm::core {

enum class Stores : bool { cached, non_temporal };

// Sums `tiles` tiles of `run` from `first_tile` on; the run's last tile may be a partial one. tile_squares gets one sum of squares a tile.
// After non_temporal stores the caller owes a fence. Needs at least one source and the default floating-point environment.
using SumTiles = void (*)(const SumRun& run, Stores stores, std::uint64_t first_tile, std::uint64_t tiles, double* tile_squares);

// That of the SIMD target in use.
[[nodiscard]] SumTiles sum_tiles_in_use() noexcept;

}  // namespace gradshm::core
