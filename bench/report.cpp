#include "report.hpp"

#include <gradshm/gradshm.h>

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.hpp"
#include "statistics.hpp"

namespace gradshm::bench {
namespace {

constexpr int kSchema = 1;

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename(); }

const char* dtype_of(const Facts& facts) { return facts.dtype == 0 ? "mixed" : gradshm_dtype_name(facts.dtype); }

double ms(std::int64_t duration_ns) { return static_cast<double>(duration_ns) / 1e6; }

// W slots are read and one result is written.
double gbps(const AllreduceOptions& options, const Facts& facts, std::int64_t duration_ns) {
  return (options.workers + 1.0) * static_cast<double>(facts.bytes) / static_cast<double>(duration_ns);
}

[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

}  // namespace

std::string table_of(const AllreduceOptions& options, const AllreduceResult& result) {
  const Facts& facts = result.facts;
  const auto latency = median(result.latencies_ns), floor = median(result.floors_ns);
  std::string text = "allreduce" + (options.layout_path.empty() ? "" : " of " + file_name(options.layout_path));
  append(text, ": workers %u, gradients %s of %s (parameters %llu, buckets %llu), rounds %zu, CPUs %u\n", options.workers,
         core::format_bytes(facts.bytes).c_str(), dtype_of(facts), static_cast<unsigned long long>(facts.parameters),
         static_cast<unsigned long long>(facts.buckets), result.latencies_ns.size(), std::thread::hardware_concurrency());
  append(text, "%-24s %12s %12s %8s\n", "", "median", "p99", "GB/s");
  append(text, "%-24s %9.4f ms %9.4f ms %8.2f\n", "last commit to visible", ms(latency), ms(percentile(result.latencies_ns, 99)),
         gbps(options, facts, latency));
  append(text, "%-24s %9.4f ms %9.4f ms %8.2f\n", "memory floor", ms(floor), ms(percentile(result.floors_ns, 99)),
         gbps(options, facts, floor));
  append(text, "ratio %.3f (median of %zu pairs; p10 %.3f, p90 %.3f)\n", median(result.ratios), result.ratios.size(),
         percentile(result.ratios, 10), percentile(result.ratios, 90));
  return text;
}

std::string json_of(const AllreduceOptions& options, const AllreduceResult& result) {
  const Facts& facts = result.facts;
  const auto latency = median(result.latencies_ns), floor = median(result.floors_ns);
  nlohmann::ordered_json json{{"schema", kSchema},           {"benchmark", "allreduce"},
                              {"version", gradshm_version()}, {"workers", options.workers},
                              {"layout", nullptr},           {"dtype", dtype_of(facts)},
                              {"parameters", facts.parameters}, {"buckets", facts.buckets},
                              {"numel", facts.elements},     {"bytes", facts.bytes},
                              {"rounds", result.latencies_ns.size()}, {"cpus", std::thread::hardware_concurrency()}};
  if (!options.layout_path.empty()) json["layout"] = file_name(options.layout_path);
  json["latency"] = {{"median_ms", ms(latency)}, {"p99_ms", ms(percentile(result.latencies_ns, 99))}, {"gbps", gbps(options, facts, latency)}};
  json["floor"] = {{"threads", result.floor_threads}, {"measurements", result.floors_ns.size()}, {"median_ms", ms(floor)},
                   {"gbps", gbps(options, facts, floor)}};
  json["ratio"] = {{"median", median(result.ratios)}, {"p10", percentile(result.ratios, 10)}, {"p90", percentile(result.ratios, 90)},
                   {"pairs", result.ratios.size()}};
  return json.dump() + "\n";
}

}  // namespace gradshm::bench
