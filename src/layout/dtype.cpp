#include "layout/dtype.hpp"

#include <array>

namespace gradshm::core {
namespace {

struct Row {
  DType dtype;
  std::uint64_t bytes;
  const char* name;
  const char* long_name;
  const char* safetensors_name;
};

constexpr std::array<Row, 4> kRows{{
    {DType::f32, 4, "f32", "float32", "F32"},
    {DType::f64, 8, "f64", "float64", "F64"},
    {DType::f16, 2, "f16", "float16", "F16"},
    {DType::bf16, 2, "bf16", "bfloat16", "BF16"},
}};

// nullptr for a value outside the enumeration, which a cast from foreign bytes can make.
const Row* find(DType dtype) noexcept {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

}  // namespace

std::uint64_t element_bytes(DType dtype) noexcept {
  const Row* row = find(dtype);
  return row == nullptr ? 0 : row->bytes;
}

const char* dtype_name(DType dtype) noexcept {
  const Row* row = find(dtype);
  return row == nullptr ? "?" : row->name;
}

const char* dtype_long_name(DType dtype) noexcept {
  const Row* row = find(dtype);
  return row == nullptr ? "?" : row->long_name;
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (const Row& row : kRows) {
    if (text == row.name || text == row.long_name || text == row.safetensors_name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of_code(int code) noexcept {
  for (const Row& row : kRows) {
    if (static_cast<int>(row.dtype) == code) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace gradshm::core
