// Element types.
#pragma once

#include <gradshm/gradshm.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradshm::core {

enum class DType : std::uint8_t { f32 = GRADSHM_F32, f64 = GRADSHM_F64, f16 = GRADSHM_F16, bf16 = GRADSHM_BF16 };

[[nodiscard]] std::uint64_t element_bytes(DType dtype) noexcept;
[[nodiscard]] const char* dtype_name(DType dtype) noexcept;       // "f32"
[[nodiscard]] const char* dtype_long_name(DType dtype) noexcept;  // "float32", as TSV files say
// Both spellings, and those of safetensors ("F32", "BF16").
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view text) noexcept;
[[nodiscard]] std::optional<DType> dtype_of_code(int code) noexcept;

}  // namespace gradshm::core
