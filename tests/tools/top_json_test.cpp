#include "top_json.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "cli_beacon.hpp"
#include "cli_layout_text.hpp"
#include "snapshots.hpp"

using namespace gradshm::tools;
using namespace gradshm::core;
using nlohmann::ordered_json;

namespace {

// "workers[].rank" and so on: the leaves of a document.
void collect(const ordered_json& value, const std::string& path, std::set<std::string>& fields) {
  if (value.is_object())
    for (const auto& [key, inner] : value.items()) collect(inner, path.empty() ? key : path + "." + key, fields);
  else if (value.is_array())
    for (const ordered_json& inner : value) collect(inner, path + "[]", fields);
  else
    fields.insert(path);
}

std::set<std::string> fields_of(const ordered_json& document) {
  std::set<std::string> fields;
  collect(document, "", fields);
  return fields;
}

std::filesystem::path document_path() {
  if (const char* source = std::getenv("GRADSHM_SOURCE")) return std::filesystem::path(source) / "docs/json.md";
  return std::filesystem::absolute(__FILE__).parent_path() / "../../docs/json.md";
}

// The fields of the table under that heading.
std::set<std::string> documented(const std::string& heading) {
  std::ifstream file(document_path());
  REQUIRE_MESSAGE(file.good(), document_path().string(), " cannot be read: set GRADSHM_SOURCE");
  std::set<std::string> fields;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## " + heading;
    if (inside && line.starts_with("| `")) fields.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return fields;
}

Snapshot full_snapshot() {
  Snapshot snapshot = straggler();
  snapshot.rounds[0].record.nonfinite_ranks[3] = 1ull << 63;
  snapshot.rounds[0].record.nonfinite_by_rank[255] = 17;
  snapshot.events = {event(41, EventKind::died, 2, "killed by signal 9")};
  return snapshot;
}

BeaconData full_beacon() {
  BeaconData beacon;
  beacon.incarnation = 0xabc, beacon.pid = 4700, beacon.closed_round = 811, beacon.member_ranks[0] = 5;
  std::string("default").copy(beacon.name, sizeof beacon.name);
  std::string("/run/user/1000/gradshm/default/sock").copy(beacon.socket_path, sizeof beacon.socket_path);
  return beacon;
}

}  // namespace

TEST_CASE("docs/json.md lists the fields of a snapshot, no more and no fewer") {
  CHECK(fields_of(snapshot_json(full_snapshot(), small_layout())) == documented("gradshm-top --json"));
}

TEST_CASE("docs/json.md lists the fields of a beacon document") {
  CHECK(fields_of(beacon_document(full_beacon(), false, kTaken)) == documented("gradshm-top --json without a picture"));
}

TEST_CASE("docs/json.md lists the fields of gradshm ls") {
  const ordered_json document{{"schema", 1}, {"instances", ordered_json::array({beacon_json(full_beacon(), true)})}};
  CHECK(fields_of(document) == documented("gradshm ls --json"));
}

TEST_CASE("docs/json.md lists the fields of a layout") {
  Parameter tied = parameter("wte.weight", {4, 2});
  tied.aliases = {"lm_head.weight"};
  const ordered_json document = ordered_json::parse(layout_json_line(layout_of({tied})));
  CHECK(fields_of(document) == documented("gradshm layout show --json"));
}

TEST_CASE("ids are strings of 16 hexadecimal digits") {
  const ordered_json document = snapshot_json(full_snapshot(), small_layout());
  CHECK(document["incarnation"] == "1f2e3d4c5b6a7988");
  CHECK(document["layout"]["fingerprint"] == "fedcba9876543210");
  const ordered_json layout = ordered_json::parse(layout_json_line(small_layout()));
  CHECK(layout["parameters"][0]["id"].get<std::string>().size() == 16);
}

TEST_CASE("bitmaps are lists of ranks") {
  Snapshot snapshot = full_snapshot();
  snapshot.rounds[0].record.contributors[1] = 1;
  const ordered_json round = snapshot_json(snapshot, small_layout())["rounds"][0];
  CHECK(round["members"] == ordered_json({0, 1, 2, 3}));
  CHECK(round["contributors"] == ordered_json({0, 1, 2, 3, 64}));
  CHECK(round["nonfinite_workers"][0]["rank"] == 255);
  CHECK(round["nonfinite_workers"][0]["elements"] == 17);
}

TEST_CASE("the straggler is named by rank and in words") {
  const ordered_json open = snapshot_json(straggler(), small_layout())["open"];
  CHECK(open["waiting_for"] == ordered_json::array({3}));
  CHECK(open["sentence"].get<std::string>().find("waiting for worker 3 (pid 4711") != std::string::npos);
}

TEST_CASE("NaN and infinity are null and flagged") {
  Snapshot snapshot = straggler();
  snapshot.rounds[0].record.sum_of_squares = std::nan("");
  snapshot.rounds[1].record.sum_of_squares = std::numeric_limits<double>::infinity();
  snapshot.rounds[2].group_weights = {std::numeric_limits<double>::infinity()};
  const ordered_json rounds = snapshot_json(snapshot, small_layout())["rounds"];
  for (const std::size_t i : {0u, 1u}) {
    CHECK(rounds[i]["norm"].is_null());
    CHECK(rounds[i]["sum_of_squares"].is_null());
    CHECK(rounds[i]["norm_is_finite"] == false);
  }
  CHECK(rounds[2]["norm"] == 2.0);
  CHECK(rounds[2]["norm_is_finite"] == true);
  CHECK(rounds[2]["group_weights"][0].is_null());
}

TEST_CASE("a document is one line that parses, whatever the labels hold") {
  Snapshot snapshot = full_snapshot();
  snapshot.members[0].label = "\x1b[2J\n\"\\\xff\xc0";
  snapshot.instance = "\xed\xa0\x80";
  const std::string line = to_line(snapshot_json(snapshot, small_layout()));
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(line.find('\x1b') == std::string::npos);
  CHECK(ordered_json::parse(line)["workers"][0]["label"] == "\\x1b[2J\\x0a\"\\\\\\xff\\xc0");
}

TEST_CASE("a server that was killed or stopped is dead") {
  Snapshot snapshot = straggler();
  CHECK(snapshot_json(snapshot, small_layout())["state"] == "live");
  snapshot.state = ServerState::stopped;
  CHECK(snapshot_json(snapshot, small_layout())["state"] == "dead");
  snapshot.state = ServerState::running, snapshot.daemon_alive = false;
  CHECK(snapshot_json(snapshot, small_layout())["state"] == "dead");
  CHECK(beacon_document(full_beacon(), true, kTaken)["state"] == "no-layout");
}

TEST_CASE("a dead server's document says since when, what was last known, and what to do") {
  BeaconData beacon = full_beacon();
  beacon.progress_ns = kTaken - 12 * kSecond;
  const ordered_json document = beacon_document(beacon, false, kTaken);
  CHECK(document["schema"] == 1);
  CHECK(document["state"] == "dead");
  CHECK(document["silent_ns"] == 12 * kSecond);
  CHECK(document["beacon"]["member_ranks"] == ordered_json({0, 2}));
  const auto sentence = document["sentence"].get<std::string>();
  CHECK(sentence.starts_with("DEAD 12 s: the server (pid 4700) was killed"));
  CHECK(sentence.find("gradshmd --name default") != std::string::npos);
  beacon.progress_ns = kTaken + 1;  // of another boot
  CHECK(beacon_document(beacon, false, kTaken)["silent_ns"] == 0);
}

TEST_CASE("nothing attached and nothing closed are empty lists") {
  Snapshot snapshot = straggler();
  snapshot.members.clear(), snapshot.rounds.clear();
  const ordered_json document = snapshot_json(snapshot, small_layout());
  for (const char* key : {"workers", "rounds", "events"}) CHECK(document[key] == ordered_json::array());
  CHECK(document["open"]["waiting_for"] == ordered_json::array());
}
