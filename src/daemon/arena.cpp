#include "daemon/arena.hpp"

#include <unistd.h>

#include <cstring>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "memory/beacon.hpp"
#include "memory/rundir.hpp"
#include "memory/space.hpp"

namespace gradshm::core {
namespace {

ControlHeader control_header(const Layout& layout, const ServerOptions& options, unsigned reducer_threads) {
  ControlHeader header;
  header.buckets = static_cast<std::uint32_t>(layout.buckets().size());
  header.groups = static_cast<std::uint32_t>(layout.groups().size());
  header.parameters = static_cast<std::uint32_t>(layout.parameters().size());
  header.op = static_cast<std::uint32_t>(options.op);
  header.max_workers = options.max_workers;
  header.expect = options.expect;
  header.daemon_pid = getpid(), header.pid_namespace = own_pid_namespace();
  header.reducer_threads = reducer_threads;
  header.started_ns = static_cast<std::uint64_t>(now_ns());
  header.gradient_bytes = layout.gradient_bytes();
  header.bucket_bytes = options.layout.bucket_bytes;
  header.rejoin_timeout_ns = options.rejoin_timeout_ns, header.round_deadline_ns = options.round_deadline_ns;
  std::strncpy(header.instance, options.name.c_str(), sizeof header.instance - 1);
  return header;
}

// A budget that the workers of round 1 cannot keep to would only be noticed by the last of them.
void check_budget(const ServerOptions& options, const SlotShape& shape, unsigned expected_workers) {
  const std::uint64_t wanted = checked_mul(shape.total, expected_workers).value_or(UINT64_MAX);
  if (options.memory_budget == 0 || wanted <= options.memory_budget) return;
  throw Error(Status::no_space, "the memory budget of '" + options.name + "' is " + format_count(options.memory_budget) + " bytes, but round 1 opens with " +
                                    plural(expected_workers, "worker") + ", whose slots take " + format_count(wanted) +
                                    ": start gradshmd with a larger --memory-budget, or a smaller --expect");
}

Layout checked_for_space(Layout layout, const ServerOptions& options, unsigned expected_workers) {
  const SlotShape shape = slot_shape(layout);
  check_budget(options, shape, expected_workers);
  const std::uint64_t ours = result_bytes(layout) + control_shape(layout.buckets().size(), layout.groups().size()).total;
  const auto slots = checked_mul(shape.total, expected_workers);
  const auto wanted = slots ? checked_add(*slots, ours) : std::nullopt;
  const std::string each = format_count(layout.gradient_bytes()) + " gradient bytes";
  const std::string what = "instance '" + options.name + "' with " + plural(expected_workers, "expected worker") + " and " + each + " each";
  require_space(wanted.value_or(UINT64_MAX), shape.total, what, Charged::to_several);
  require_space(ours, shape.total, "the result of instance '" + options.name + "' with " + each);
  // Slots are charged to the workers' cgroups, which nobody knows yet: in ours, each worker is told by its own attach.
  if (const Space space = free_space(); space.bytes < wanted.value_or(UINT64_MAX))
    options.log(LogLevel::warning, what + " needs " + format_count(wanted.value_or(UINT64_MAX)) + " bytes, of which " + format_count(space.bytes) + " are free in the server's " +
                                       space.limited_by + ": workers in that cgroup too will not all find room for their slots");
  return layout;
}

}  // namespace

void check_options(const ServerOptions& options) {
  check_instance_name(options.name);
  if (options.max_workers < 1 || options.max_workers > kMaxWorkers)
    throw Error(Status::invalid, "max-workers is " + std::to_string(options.max_workers) + "; it takes 1 to " + std::to_string(kMaxWorkers));
  if (options.expect < 1 || options.expect > options.max_workers)
    throw Error(Status::invalid, "expect is " + std::to_string(options.expect) + "; it takes 1 to max-workers (" +
                                     std::to_string(options.max_workers) + ")");
  if (options.reducer_threads > 1024)
    throw Error(Status::invalid, "reducer-threads is " + std::to_string(options.reducer_threads) + "; it takes 1 to 1024, or 0 for all CPUs");
  if (options.layout.bucket_bytes == 0) throw Error(Status::invalid, "bucket-bytes is 0; it takes 1 byte or more (8 MiB by default)");
  Parameter any;
  any.name = "any";
  Manifest probe;
  probe.add(any);
  try {
    static_cast<void>(Layout(std::move(probe), options.layout));
  } catch (const Error& error) {
    throw Error(Status::invalid, error.what());  // group prefixes: now, not when the first worker comes
  }
  constexpr std::int64_t kMaxDeadlineNs = std::int64_t{1} << 60;  // 36 years: sums with the clock do not overflow
  if (options.round_deadline_ns < 0 || options.round_deadline_ns > kMaxDeadlineNs)
    throw Error(Status::invalid, "round-deadline takes a time above 0, or 0 for none");
  if (options.rejoin_timeout_ns < 0 || options.rejoin_timeout_ns > kMaxDeadlineNs)
    throw Error(Status::invalid, "rejoin-timeout takes a time of 0 or more");
  constexpr std::int64_t kMaxSpinNs = 10'000'000'000;
  if (options.spin_ns > kMaxSpinNs) throw Error(Status::invalid, "spin takes at most 10 s, not " + format_seconds(options.spin_ns) + ": while it lasts the server keeps a CPU busy");
  if (options.op > Op::weighted_mean) throw Error(Status::invalid, "op takes sum, mean or weighted-mean");
}

Arena::Arena(Layout given, const ServerOptions& options, std::uint64_t incarnation, unsigned reducer_threads, unsigned expected_workers)
    : layout(checked_for_space(std::move(given), options, expected_workers)),
      shape(slot_shape(layout)),
      layout_file(MemFd::sealed_copy("gradshm-layout", encode_layout(layout))),
      control(create_control(control_header(layout, options, reducer_threads), incarnation, layout.layout_fingerprint())),
      result(create_result(layout, incarnation)) {}

}  // namespace gradshm::core
