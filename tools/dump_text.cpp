#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli_text.hpp"
#include "dump.hpp"

namespace gradshm::tools {
using nlohmann::ordered_json;
namespace {

constexpr std::uint64_t kFirst = 8, kLast = 4;
constexpr int kDigits = 9;

const char* to_string(DumpState state) { return state == DumpState::closed ? "closed" : state == DumpState::committed ? "committed" : "writing"; }

std::string result_sentence(const Dump& dump) {
  const std::string start = "result of round " + std::to_string(dump.round) + " (" + dump.result->op + "): ";
  if (dump.result->count == 0) return start + "absent, no worker had it";
  return start + "from " + core::plural(dump.result->count, "worker") + ", sum of weights " + format_number(dump.result->weight_sum, kDigits);
}

std::string slot_sentence(const Dump& dump) {
  const std::string start = "slot of worker " + std::to_string(dump.slot->rank) + " (pid " + std::to_string(dump.slot->pid) + "): ";
  const std::string round = "round " + std::to_string(dump.round);
  const std::string commit = ", weight " + format_number(dump.slot->weight, kDigits) + (dump.slot->present ? "" : ", absent in that commit");
  if (dump.state == DumpState::committed) return start + "committed to " + round + commit;
  if (dump.state == DumpState::closed) return start + "committed to " + round + commit + "; that has closed, so the worker may be writing";
  return start + (dump.round == 0 ? "never committed" : "last committed to " + round + ", meanwhile") + "; the worker may be writing";
}

std::string stats_sentence(const Stats& stats) {
  std::string text = core::plural(stats.finite + stats.nan + stats.infinite, "element");
  if (stats.finite > 0)
    text += ": norm " + format_number(stats.norm, kDigits) + ", min " + format_number(stats.min, kDigits) + ", max " +
            format_number(stats.max, kDigits) + ", mean " + format_number(stats.mean, kDigits);
  const std::uint64_t nonfinite = stats.nan + stats.infinite;
  if (nonfinite == 0) return text;
  return text + "; " + core::format_count(nonfinite) + " not finite and left out of these (" +
         core::format_count(stats.nan) + " nan, " + core::format_count(stats.infinite) + " inf)";
}

std::string range_text(const Dump& dump, std::uint64_t begin, std::uint64_t end, const char* separator) {
  std::string text;
  for (std::uint64_t i = begin; i < end; ++i) text += (i == begin ? "" : separator) + value_text(dump, i);
  return text;
}

ordered_json finite_or_null(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

ordered_json range_json(const Dump& dump, std::uint64_t begin, std::uint64_t end) {
  ordered_json values = ordered_json::array();
  for (std::uint64_t i = begin; i < end; ++i) values.push_back(finite_or_null(value_at(dump, i)));
  return values;
}

ordered_json parameter_json(const Dump& dump) {
  const core::Parameter& parameter = dump.parameter;
  return {{"id", core::format_hex(parameter.id)}, {"name", parameter.name},   {"dtype", core::dtype_name(parameter.dtype)},
          {"order", parameter.order == core::Order::f ? "F" : "C"}, {"shape", parameter.shape}, {"numel", parameter.numel},
          {"bucket", dump.bucket},                {"group", dump.group}};
}

ordered_json stats_json(const Stats& stats) {
  const auto known = [&](double value) { return stats.finite == 0 ? ordered_json(nullptr) : finite_or_null(value); };
  return {{"finite", stats.finite}, {"nan", stats.nan}, {"infinite", stats.infinite}, {"norm", finite_or_null(stats.norm)},
          {"min", known(stats.min)}, {"max", known(stats.max)}, {"mean", known(stats.mean)}};
}

}  // namespace

std::string dump_text(const Dump& dump, bool all) {
  const std::uint64_t numel = dump.parameter.numel;
  const std::string head = core::escape(dump.parameter.name) + "  " + core::describe(dump.parameter) + "\n" +
                           (dump.result ? result_sentence(dump) : slot_sentence(dump)) + "\n" +
                           stats_sentence(stats_of(dump)) + "\n";
  if (numel == 0) return head;
  if (all || numel <= kFirst + kLast) return head + range_text(dump, 0, numel, all ? "\n" : " ") + "\n";
  return head + range_text(dump, 0, kFirst, " ") + " ... " + range_text(dump, numel - kLast, numel, " ") + "\n";
}

std::string dump_json_line(const Dump& dump, bool all) {
  ordered_json document{{"schema", 1}, {"instance", core::escape(dump.instance)}, {"source", dump.result ? "result" : "slot"}, {"state", to_string(dump.state)},
                        {"round", dump.round}, {"parameter", parameter_json(dump)}};
  if (dump.result) document["result"] = {{"op", dump.result->op}, {"count", dump.result->count}, {"weight_sum", finite_or_null(dump.result->weight_sum)}};
  if (dump.slot)
    document["slot"] = {{"rank", dump.slot->rank}, {"generation", dump.slot->generation}, {"pid", dump.slot->pid},
                        {"weight", finite_or_null(dump.slot->weight)}, {"present", dump.slot->present}};
  document["stats"] = stats_json(stats_of(dump));
  const std::uint64_t numel = dump.parameter.numel;
  if (all) {
    document["values"] = range_json(dump, 0, numel);
  } else {
    document["first"] = range_json(dump, 0, std::min(numel, kFirst));
    document["last"] = range_json(dump, numel - std::min(numel, kLast), numel);
  }
  return document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gradshm::tools
