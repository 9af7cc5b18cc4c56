// gradshm dump: the values of one parameter, of a closed round's result or of a worker's slot.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/text.hpp"
#include "cli.hpp"
#include "cli_beacon.hpp"
#include "client/handle.hpp"
#include "client/slot_view.hpp"
#include "client/snapshot.hpp"
#include "dump_npy.hpp"
#include "memory/beacon.hpp"
#include "memory/rundir.hpp"

namespace gradshm::tools {
namespace {

constexpr const char* kFooter = R"(
Looking disturbs nobody. The result is that of one closed round. A slot is its worker's own memory, which it may be
writing to meanwhile: what is shown is called committed only while the round that it was committed to is open. Norm,
min, max and mean are of the finite elements. .npy files are of format 1.0; bf16 has no NumPy type and goes out as its
bit patterns (<u2). JSON: see docs/json.md.

Examples:
  gradshm dump --param fc1.weight                          the newest result, of 'default'
  gradshm dump run-4711 --param fc1.weight --slot 3        what worker 3 has in its slot
  gradshm dump --param fc1.weight --npy fc1.npy            then: numpy.load("fc1.npy")
  gradshm dump --param fc1.bias --all --json | python3 -m json.tool

Exit codes: 0 done, 1 bad options or another error, 2 no such instance, parameter or worker, or no closed round yet,
3 the server is dead, 4 another version of gradshm, or damaged memory.)";

struct DumpArguments {
  std::string name, parameter, slot = "result", npy;
  double seconds = 10;
  bool all = false, json = false;
};

// nullopt: the result.
std::optional<unsigned> rank_of(const std::string& slot) {
  if (slot == "result") return std::nullopt;
  unsigned rank = 0;
  const char* const end = slot.data() + slot.size();
  const auto parsed = std::from_chars(slot.data(), end, rank);
  if (parsed.ec != std::errc() || parsed.ptr != end || rank >= core::kMaxWorkers)
    throw CLI::ValidationError("--slot", "wants 'result' or a rank, 0 to " + std::to_string(core::kMaxWorkers - 1) + ", not '" + core::escape(slot) + "'");
  return rank;
}

std::unique_ptr<core::Handle> observe(const std::string& instance, const core::Deadline& deadline) {
  try {
    return core::Handle::observe(instance, deadline);
  } catch (const core::Error& error) {
    const auto beacon = core::read_beacon(geteuid(), instance);
    if (error.status() != core::Status::no_server) throw;
    if (!beacon || core::is_alive(*beacon)) throw explain_absence(instance, error);
    throw core::Error(core::Status::daemon_lost, "the server '" + instance + "' is dead (pid " + std::to_string(beacon->pid) +
                                                     "), and its result with it; `gradshm-top " + instance + " --once` shows its last beacon");
  }
}

std::size_t find_parameter(const core::InstanceView& view, const std::string& name, const std::string& instance) {
  if (const auto found = view.find(name)) return *found;
  std::string closest;
  for (const std::string& other : closest_names(view.layout(), name)) closest += (closest.empty() ? "" : ", ") + ("'" + core::escape(other) + "'");
  throw core::Error(core::Status::not_found, "'" + instance + "' has no parameter '" + core::escape(name) + "'; closest: " +
                                                  closest + " (all of them: gradshm layout show " + instance + ")");
}

void read_result(core::Handle& handle, std::size_t parameter, const core::Deadline& deadline, Dump& dump) {
  core::ResultInfo info;
  const core::Status status = handle.read(parameter, dump.bytes.data(), deadline, info);
  if (status == core::Status::ok) {
    dump.state = DumpState::closed, dump.round = info.round;
    dump.result = ResultPart{core::op_name(static_cast<int>(handle.view().header().op)), info.count, info.weight_sum};
    return;
  }
  if (handle.view().closed_round() == 0) throw core::Error(core::Status::not_found, "no round of '" + dump.instance + "' has closed yet: there is no result");
  throw core::Error(status, "the result of '" + core::escape(dump.parameter.name) + "' is being replaced, and the round that does so has not closed in time; " +
                                "`gradshm-top " + dump.instance + "` shows whom it waits for (--timeout)");
}

void read_slot(const core::Handle& handle, unsigned rank, std::size_t parameter, const core::Deadline& deadline, Dump& dump) {
  const core::SlotView view(dump.instance, handle.view(), rank, parameter, deadline);
  const core::SlotCopy copy = view.read(dump.bytes.data());
  dump.state = copy.state == core::SlotState::committed ? DumpState::committed : copy.state == core::SlotState::closed ? DumpState::closed : DumpState::writing;
  dump.round = copy.round;
  dump.slot = SlotPart{rank, view.generation(), view.pid(), copy.weight, copy.present};
}

Dump take(const DumpArguments& arguments) {
  const std::optional<unsigned> rank = rank_of(arguments.slot);
  if (!(arguments.seconds >= 0 && arguments.seconds <= 86'400)) throw CLI::ValidationError("--timeout", "wants 0 to 86400 seconds");
  const core::Deadline deadline = core::Deadline::after(static_cast<std::int64_t>(arguments.seconds * 1e9));
  Dump dump;
  dump.instance = core::resolve_instance_name(arguments.name.c_str());
  const auto handle = observe(dump.instance, deadline);
  const core::Layout& layout = handle->view().layout();
  const std::size_t parameter = find_parameter(handle->view(), arguments.parameter, dump.instance);
  const core::Placement& place = layout.placements()[parameter];
  dump.parameter = layout.parameters()[parameter], dump.group = layout.groups()[place.group], dump.bucket = place.bucket;
  dump.bytes.resize(place.bytes);
  if (rank) read_slot(*handle, *rank, parameter, deadline, dump);
  else read_result(*handle, parameter, deadline, dump);
  return dump;
}

int print(const DumpArguments& arguments) {
  const bool to_stdout = arguments.npy == "-";
  if (to_stdout && arguments.json) throw CLI::ValidationError("--npy", "- and --json would both go to standard output");
  const Dump dump = take(arguments);
  if (!arguments.npy.empty() && dump.parameter.dtype == core::DType::bf16)
    std::fprintf(stderr, "gradshm dump: bf16 goes out as <u2; as f32: (a.astype('<u4') << 16).view('<f4')\n");
  if (to_stdout) {
    (void)write_out(npy_of(dump));
    return kOk;
  }
  if (!arguments.npy.empty()) write_file(arguments.npy, npy_of(dump));
  (void)write_out(arguments.json ? dump_json_line(dump, arguments.all) : dump_text(dump, arguments.all));
  return kOk;
}

}  // namespace

void add_dump(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("dump", "Prints the values of a parameter: of the result, or of a worker's slot");
  sub->footer(kFooter);
  auto arguments = std::make_shared<DumpArguments>();
  sub->add_option("NAME,--name", arguments->name, "The instance (default $GRADSHM_INSTANCE or 'default')");
  sub->add_option("--param", arguments->parameter, "Name or alias of the parameter")->required();
  sub->add_option("--slot", arguments->slot, "A worker's rank, or 'result' (the default)");
  sub->add_flag("--all", arguments->all, "All values, one a line, in place of the first and last");
  sub->add_flag("--json", arguments->json, "One JSON document");
  sub->add_option("--npy", arguments->npy, "Writes the values to this file as well, for numpy.load; - is standard output");
  sub->add_option("--timeout", arguments->seconds, "Seconds to wait for a whole result (default 10)");
  sub->callback([arguments, &invocation] { invocation.exit_code = print(*arguments); });
}

}  // namespace gradshm::tools
