#include "cli_layout_text.hpp"

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli_table.hpp"
#include "cli_text.hpp"

namespace gradshm::tools {
using nlohmann::ordered_json;
namespace {

std::string shape_text(const core::Parameter& parameter) {
  std::string text = "[";
  for (const std::int64_t dim : parameter.shape) text += (text.size() > 1 ? "," : "") + std::to_string(dim);
  return text + (parameter.order == core::Order::f ? "] column-major" : "]");
}

std::string alias_text(const core::Parameter& parameter) {
  std::string text;
  for (const std::string& alias : parameter.aliases) text += (text.empty() ? "" : " ") + core::escape(alias);
  return text;
}

std::string group_text(const core::Layout& layout, std::size_t group) {
  const std::string& name = layout.groups()[group];
  return name.empty() ? "default" : core::escape(name);
}

std::uint64_t elements_of(const core::Layout& layout) {
  std::uint64_t elements = 0;  // below 2^62: the layout's bytes are
  for (const core::Parameter& parameter : layout.parameters()) elements += parameter.numel;
  return elements;
}

ordered_json parameter_json(const core::Layout& layout, std::size_t index) {
  const core::Parameter& parameter = layout.parameters()[index];
  const core::Placement& placement = layout.placements()[index];
  return {{"id", core::format_hex(parameter.id)},
          {"name", parameter.name},
          {"dtype", core::dtype_name(parameter.dtype)},
          {"order", parameter.order == core::Order::f ? "F" : "C"},
          {"shape", parameter.shape},
          {"numel", parameter.numel},
          {"offset", placement.offset},
          {"bytes", placement.bytes},
          {"bucket", placement.bucket},
          {"group", placement.group},
          {"aliases", parameter.aliases}};
}

ordered_json bucket_json(const core::Bucket& bucket) {
  return {{"group", bucket.group}, {"dtype", core::dtype_name(bucket.dtype)}, {"parameters", bucket.parameters}, {"offset", bucket.offset}, {"bytes", bucket.bytes}};
}

}  // namespace

std::string layout_totals(const core::Layout& layout) {
  return core::plural(layout.parameters().size(), "parameter") + ", " + core::plural(elements_of(layout), "element") + ", " +
         core::format_bytes(layout.gradient_bytes()) + " (" + core::format_count(layout.gradient_bytes()) + " bytes) a slot, " +
         core::plural(layout.buckets().size(), "bucket") + ", " + core::plural(layout.groups().size(), "group") + ", fingerprint " +
         core::format_hex(layout.layout_fingerprint());
}

std::string layout_table(const core::Layout& layout, std::size_t width) {
  constexpr Column::Align kLeft = Column::Align::left, kRight = Column::Align::right;
  const std::vector<Column> columns{{"id", kLeft, 3, 0},      {"name", kLeft, 9, 16},   {"dtype", kLeft, 7, 0}, {"shape", kLeft, 8, 0},  {"numel", kRight, 4, 0},
                                    {"offset", kRight, 5, 0}, {"bucket", kRight, 6, 0}, {"group", kLeft, 2, 7}, {"aliases", kLeft, 1, 7}};
  std::vector<Row> rows;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const core::Parameter& parameter = layout.parameters()[i];
    const core::Placement& placement = layout.placements()[i];
    rows.push_back({core::format_hex(parameter.id), core::escape(parameter.name), core::dtype_name(parameter.dtype), shape_text(parameter),
                    std::to_string(parameter.numel), std::to_string(placement.offset), std::to_string(placement.bucket), group_text(layout, placement.group), alias_text(parameter)});
  }
  return joined(format_table(columns, rows, width)) + layout_totals(layout) + "\n";
}

std::string layout_json_line(const core::Layout& layout) {
  ordered_json parameters = ordered_json::array(), buckets = ordered_json::array();
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) parameters.push_back(parameter_json(layout, i));
  for (const core::Bucket& bucket : layout.buckets()) buckets.push_back(bucket_json(bucket));
  const ordered_json document{{"schema", 1},
                              {"fingerprint", core::format_hex(layout.layout_fingerprint())},
                              {"numel", elements_of(layout)},
                              {"gradient_bytes", layout.gradient_bytes()},
                              {"groups", layout.groups()},
                              {"buckets", buckets},
                              {"parameters", parameters}};
  return document.dump() + "\n";
}

}  // namespace gradshm::tools
