#include <algorithm>

#include "base/checked.hpp"
#include "layout/manifest.hpp"
#include "layout/names.hpp"
#include "layout/tsv_format.hpp"

namespace gradshm::core {
namespace {

std::string shape_text(const Parameter& parameter) {
  std::string text;
  for (const std::int64_t dim : parameter.shape) text.append(text.empty() ? "" : "x").append(std::to_string(dim));
  return text.empty() ? "()" : text;
}

std::string aliases_text(const Parameter& parameter) {
  std::string text;
  for (const std::string& alias : parameter.aliases) {
    if (alias.find('|') != std::string::npos) {
      throw Error(Status::bad_layout, "alias " + in_quotes(alias) + " of parameter " + in_quotes(parameter.name) +
                                          " cannot be written as TSV, where | separates aliases");
    }
    text.append(text.empty() ? "" : "|").append(alias);
  }
  return text;
}

class TsvWriter {
 public:
  explicit TsvWriter(const std::vector<Parameter>& parameters) : parameters_(parameters) {
    const auto any = [&](auto predicate) { return std::any_of(parameters.begin(), parameters.end(), predicate); };
    has_aliases_ = any([](const Parameter& p) { return !p.aliases.empty(); });
    has_group_ = any([](const Parameter& p) { return !p.group.empty(); });
    has_order_ = any([](const Parameter& p) { return p.order != Order::c; });
  }

  std::string write() {
    put_row("name", "dtype", "shape", "numel", "aliases", "group", "order");
    std::optional<std::uint64_t> numel = 0;
    for (const Parameter& parameter : parameters_) {
      if (parameter.name.front() == '#') {
        throw Error(Status::bad_layout, "parameter " + in_quotes(parameter.name) + " cannot be written as TSV, where # begins a comment");
      }
      put_row(parameter.name, dtype_long_name(parameter.dtype), shape_text(parameter), std::to_string(parameter.numel),
              aliases_text(parameter), parameter.group, parameter.order == Order::c ? "C" : "F");
      if (numel) numel = checked_add(*numel, parameter.numel);
    }
    return text_.append(tsv_total_line(parameters_.size(), numel)).append("\n");
  }

 private:
  void put_row(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view numel, std::string_view aliases,
               std::string_view group, std::string_view order) {
    text_.append(name).append("\t").append(dtype).append("\t").append(shape).append("\t").append(numel);
    if (has_aliases_) text_.append("\t").append(aliases);
    if (has_group_) text_.append("\t").append(group);
    if (has_order_) text_.append("\t").append(order);
    text_.append("\n");
  }

  const std::vector<Parameter>& parameters_;
  bool has_aliases_ = false;
  bool has_group_ = false;
  bool has_order_ = false;
  std::string text_;
};

}  // namespace

std::string tsv_total_line(std::size_t parameters, std::optional<std::uint64_t> numel) {
  return "#total\t" + std::to_string(parameters) + " tensors\t-\t" + (numel ? std::to_string(*numel) : "more than 2^64");
}

std::string to_tsv(const Manifest& manifest) { return TsvWriter(manifest.parameters()).write(); }

}  // namespace gradshm::core
