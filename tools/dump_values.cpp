#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "dump.hpp"
#include "reduce/half.hpp"

namespace gradshm::tools {
namespace {

template <class T>
T element(const Dump& dump, std::uint64_t index) {
  T value;
  std::memcpy(&value, dump.bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

double value_at(const Dump& dump, std::uint64_t index) {
  switch (dump.parameter.dtype) {
    case core::DType::f32: return element<float>(dump, index);
    case core::DType::f64: return element<double>(dump, index);
    case core::DType::f16: return core::f32_of_f16(element<std::uint16_t>(dump, index));
    case core::DType::bf16: return core::f32_of_bf16(element<std::uint16_t>(dump, index));
  }
  return 0;
}

std::string value_text(const Dump& dump, std::uint64_t index) {
  const double value = value_at(dump, index);
  return dump.parameter.dtype == core::DType::f64 ? shortest(value) : shortest(static_cast<float>(value));
}

Stats stats_of(const Dump& dump) {
  Stats stats;
  long double sum = 0, squares = 0;  // so that large f64 do not overflow on the way
  for (std::uint64_t i = 0; i < dump.parameter.numel; ++i) {
    const double value = value_at(dump, i);
    stats.nan += std::isnan(value), stats.infinite += std::isinf(value);
    if (!std::isfinite(value)) continue;
    stats.min = stats.finite == 0 ? value : std::min(stats.min, value);
    stats.max = stats.finite == 0 ? value : std::max(stats.max, value);
    sum += value, squares += static_cast<long double>(value) * value;
    ++stats.finite;
  }
  if (stats.finite > 0) stats.mean = static_cast<double>(sum / static_cast<long double>(stats.finite));
  stats.norm = static_cast<double>(std::sqrt(squares));
  return stats;
}

}  // namespace gradshm::tools
