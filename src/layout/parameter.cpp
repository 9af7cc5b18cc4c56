#include "layout/parameter.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "layout/hash.hpp"
#include "layout/names.hpp"

namespace gradshm::core {
namespace {

constexpr std::size_t kMaxAliases = 255;
constexpr std::uint64_t kMaxParameterBytes = 1ull << 62;

[[noreturn]] void refuse(const Parameter& parameter, const std::string& fault) {
  throw Error(Status::bad_layout, "parameter " + in_quotes(parameter.name) + " " + fault);
}

void check_aliases(const Parameter& parameter) {
  if (parameter.aliases.empty()) return;
  if (parameter.aliases.size() > kMaxAliases) {
    refuse(parameter, "has " + format_count(parameter.aliases.size()) + " aliases; at most 255 are possible");
  }
  std::vector<std::string_view> names{parameter.name};
  for (const std::string& alias : parameter.aliases) {
    const std::string fault = fault_of_name(alias);
    if (!fault.empty()) refuse(parameter, "has an alias that " + fault + ": " + in_quotes(alias));
    names.emplace_back(alias);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse(parameter, "names " + in_quotes(*twice) + " twice; each of name and aliases must differ");
}

void check_names(const Parameter& parameter) {
  const std::string fault = fault_of_name(parameter.name);
  if (!fault.empty()) refuse(parameter, fault);
  check_aliases(parameter);
  const std::string group_fault = parameter.group.empty() ? "" : fault_of_name(parameter.group);
  if (!group_fault.empty()) refuse(parameter, "has a group that " + group_fault + ": " + in_quotes(parameter.group));
}

std::uint64_t elements_of(const Parameter& parameter) {
  // As numpy does, dimensions beside a 0 must be possible too: strides are computed from them.
  std::uint64_t product = 1;
  bool is_empty = false;
  for (const std::int64_t dim : parameter.shape) {
    if (dim < 0) refuse(parameter, "has the negative dimension " + std::to_string(dim));
    if (dim == 0) {
      is_empty = true;
      continue;
    }
    const auto next = checked_mul(product, static_cast<std::uint64_t>(dim));
    if (!next || *next >= kMaxParameterBytes / element_bytes(parameter.dtype)) {
      refuse(parameter, "is too large: " + describe(parameter) + " has 2^62 bytes or more");
    }
    product = *next;
  }
  return is_empty ? 0 : product;
}

// Column-major and row-major are the same order of bytes where at most one dimension has a choice.
bool has_one_order(const Parameter& parameter) {
  return parameter.numel == 0 || std::count_if(parameter.shape.begin(), parameter.shape.end(), [](auto dim) { return dim > 1; }) <= 1;
}

}  // namespace

std::uint64_t parameter_id(std::string_view name) noexcept { return hash_bytes(name); }

std::string fault_of_name(std::string_view text) {
  if (text.empty()) return "has an empty name";
  if (text.size() > kMaxNameBytes) return "has a name of " + format_count(text.size()) + " bytes; at most 1,024 are possible";
  if (!is_utf8(text)) return "is not UTF-8";
  if (has_control(text)) return "has control characters in its name";
  return {};
}

std::string_view key_name(const Parameter& parameter) noexcept {
  std::string_view smallest = parameter.name;
  for (const std::string& alias : parameter.aliases) smallest = std::min(smallest, std::string_view(alias));
  return smallest;
}

void check_parameter(Parameter& parameter, IdFunction id_of) {
  check_names(parameter);
  if (element_bytes(parameter.dtype) == 0) {
    refuse(parameter, "has the unknown dtype code " + std::to_string(static_cast<int>(parameter.dtype)) +
                          "; known are f32, f64, f16 and bf16");
  }
  if (parameter.order != Order::c && parameter.order != Order::f) {
    refuse(parameter, "has the unknown order code " + std::to_string(static_cast<int>(parameter.order)) +
                          "; 0 is row-major, 1 is column-major");
  }
  if (parameter.shape.size() > kMaxDims) {
    refuse(parameter, "has " + format_count(parameter.shape.size()) + " dimensions; at most 16 are possible");
  }
  parameter.numel = elements_of(parameter);
  if (has_one_order(parameter)) parameter.order = Order::c;
  parameter.id = id_of(key_name(parameter));
}

std::string describe(const Parameter& parameter) {
  std::string text = std::string(dtype_name(parameter.dtype)) + "[";
  for (std::size_t i = 0; i < parameter.shape.size(); ++i) text.append(i == 0 ? "" : ",").append(std::to_string(parameter.shape[i]));
  text += ']';
  if (parameter.order == Order::f) text += " column-major";
  return text;
}

}  // namespace gradshm::core
