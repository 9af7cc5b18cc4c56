// How many elements are NaN or infinite. Only asked about tiles whose sum of squares is not finite, so it need not be fast.
#pragma once

#include <cstdint>

#include "layout/dtype.hpp"

namespace gradshm::core {

[[nodiscard]] std::uint64_t count_nonfinite(DType dtype, const void* data, std::uint64_t first, std::uint64_t elems) noexcept;

}  // namespace gradshm::core
