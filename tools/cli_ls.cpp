// gradshm ls: the instances of this user, as their beacons tell.
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/text.hpp"
#include "cli.hpp"
#include "cli_beacon.hpp"
#include "cli_table.hpp"
#include "cli_text.hpp"
#include "memory/rundir.hpp"

namespace gradshm::tools {
namespace {

constexpr const char* kFooter = R"(
Lists the living servers of this user, and dead ones that were killed before they could clean up (--clean removes
what they left: beacon, socket and lock, unless their workers still look for a new server; so does the next server of that name). Rounds are up to a second old. JSON: see docs/json.md.

Exit codes: 0 done (also if there is none), 1 bad options.)";

void print_json(const std::vector<core::BeaconData>& beacons) {
  nlohmann::ordered_json instances = nlohmann::ordered_json::array();
  for (const core::BeaconData& beacon : beacons) instances.push_back(beacon_json(beacon, core::is_alive(beacon)));
  const nlohmann::ordered_json document{{"schema", 1}, {"instances", instances}};
  (void)write_out(document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Row to_row(const core::BeaconData& beacon) {
  return {core::escape(text_of(beacon.name)), std::to_string(beacon.pid), core::is_alive(beacon) ? "alive" : "dead", std::to_string(beacon.closed_round),
          std::to_string(beacon.members), core::format_count(beacon.parameters), core::format_bytes(beacon.gradient_bytes), core::escape(text_of(beacon.socket_path))};
}

void print_table(const std::vector<core::BeaconData>& beacons) {
  constexpr Column::Align kLeft = Column::Align::left, kRight = Column::Align::right;
  const std::vector<Column> columns{{"name", kLeft, 9, 8}, {"pid", kRight, 8, 0}, {"state", kLeft, 7, 0}, {"round", kRight, 6, 0},
                                    {"members", kRight, 5, 0}, {"parameters", kRight, 3, 0}, {"slot", kRight, 4, 0}, {"socket", kLeft, 2, 12}};
  std::vector<Row> rows;
  for (const core::BeaconData& beacon : beacons) rows.push_back(to_row(beacon));
  (void)write_out(joined(format_table(columns, rows, output_width())));
}

int list_instances(bool json) {
  const std::vector<core::BeaconData> beacons = core::list_beacons(geteuid());
  if (json) print_json(beacons);
  else if (beacons.empty()) (void)write_out("no instances of uid " + std::to_string(geteuid()) + " (start one with gradshmd or gradshm run)\n");
  else print_table(beacons);
  return kOk;
}

// Beacon, socket, lock and directory; nothing while another server has the lock, be it one that only starts.
bool remove_remains(const core::BeaconData& dead) {
  const std::string socket = text_of(dead.socket_path), tail = "/" + text_of(dead.name) + "/sock";
  const auto remove_its_beacon = [&] { return core::remove_beacon(dead); };
  if (!socket.ends_with(tail)) return remove_its_beacon();
  return core::remove_abandoned(socket.substr(0, socket.rfind('/')), remove_its_beacon);
}

// They look for a successor, which must know who they are: without the beacon it would go on without them.
bool has_living_workers(const core::BeaconData& beacon) {
  if (beacon.pid_namespace == 0 || beacon.pid_namespace != core::own_pid_namespace()) return false;
  return std::any_of(std::begin(beacon.listed), std::end(beacon.listed), [](const core::ListedWorker& worker) {
    return worker.generation != 0 && worker.pid > 0 && worker.pid_start != 0 && core::pid_start_time(worker.pid) == worker.pid_start;
  });
}

int clean() {
  std::string lines;
  for (const core::BeaconData& beacon : core::list_beacons(geteuid()))
    if (!core::is_alive(beacon) && has_living_workers(beacon))
      lines += "kept " + core::escape(text_of(beacon.name)) + ": its workers live and look for a new server\n";
    else if (!core::is_alive(beacon) && remove_remains(beacon))
      lines += "removed " + core::escape(text_of(beacon.name)) + " (pid " + std::to_string(beacon.pid) + ", " + core::escape(text_of(beacon.socket_path)) + ")\n";
  (void)write_out(lines.empty() ? "nothing to remove: no server of uid " + std::to_string(geteuid()) + " is dead\n" : lines);
  return kOk;
}

}  // namespace

void add_ls(CLI::App& app, Invocation& invocation) {
  CLI::App* ls = app.add_subcommand("ls", "Lists the instances of this user");
  ls->footer(kFooter);
  auto json = std::make_shared<bool>(false), cleans = std::make_shared<bool>(false);
  auto* json_flag = ls->add_flag("--json", *json, "One JSON document");
  ls->add_flag("--clean", *cleans, "Removes what dead servers left, and says whose it was")->excludes(json_flag);
  ls->callback([json, cleans, &invocation] { invocation.exit_code = *cleans ? clean() : list_instances(*json); });
}

}  // namespace gradshm::tools
