// A named tensor as a worker registers it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/dtype.hpp"

namespace gradshm::core {

inline constexpr std::size_t kMaxDims = GRADSHM_MAX_DIMS;
inline constexpr std::size_t kMaxNameBytes = GRADSHM_MAX_NAME;

enum class Order : std::uint8_t { c = GRADSHM_ORDER_C, f = GRADSHM_ORDER_F };  // row-major, column-major

// XXH3-64 with seed 0 of the name's bytes (xxHash library): the same in every process, language and run.
[[nodiscard]] std::uint64_t parameter_id(std::string_view name) noexcept;
using IdFunction = std::uint64_t (*)(std::string_view);  // tests plant collisions with another one

struct Parameter {
  std::string name;                  // as registered first
  DType dtype = DType::f32;
  Order order = Order::c;
  std::vector<std::int64_t> shape;   // empty = scalar
  std::string group;                 // empty = the default group
  std::vector<std::string> aliases;  // further names of a tied tensor

  std::uint64_t id = 0;              // of the bytewise smallest of name and aliases; set by check_parameter
  std::uint64_t numel = 0;           // set by check_parameter
};

// Validates names (UTF-8, 1 to 1,024 bytes, no control characters; aliases too, at most 255, none twice), dtype, shape (at most 16
// dims, each >= 0, product of the dims that are not 0 times element size below 2^62), group (at most 1,024 bytes, same rules, may be
// empty) and fills id and numel. What is column-major and row-major at once (no element, or at most one dimension above 1) becomes
// row-major. Throws Error(bad_layout) that names the parameter.
void check_parameter(Parameter& parameter, IdFunction id_of = parameter_id);

// "f32[256,784]", "f32[]" for a scalar, with " column-major" behind it where it is.
[[nodiscard]] std::string describe(const Parameter& parameter);

}  // namespace gradshm::core
