#include "top_render.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "cli_table.hpp"
#include "cli_text.hpp"
#include "snapshots.hpp"

using namespace gradshm::tools;
using namespace gradshm::core;

namespace {

using Lines = std::vector<std::string>;

bool has_line_with(const Lines& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

std::size_t widest(const Lines& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, columns_of(line));
  return width;
}

bool is_plain(const Lines& lines) {
  return std::all_of(lines.begin(), lines.end(), [](const std::string& line) {
    return std::all_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  });
}

Snapshot many_workers() {
  Snapshot snapshot = straggler();
  for (int rank = 4; rank < 256; ++rank) snapshot.members.push_back(member(rank, 1, kTaken - kSecond));
  snapshot.members[200].arrived_buckets = 0;
  for (std::uint64_t i = 0; i < 9; ++i) snapshot.events.push_back(event(i, EventKind::joined, 1, "joined"));
  return snapshot;
}

}  // namespace

TEST_CASE("the table shows server, straggler, workers and rounds") {
  Snapshot snapshot = straggler();
  snapshot.rounds.resize(2);
  snapshot.events = {event(0, EventKind::died, 2, "killed by signal 9")};
  const Lines lines = render(snapshot, small_layout(), {110, 0, false});
  const Lines expected{
      "gradshm default  running  pid 4700  up 3 min 12 s  op mean  incarnation 1f2e3d4c5b6a7988",
      "round 811 closed  812 open for 2.1 s  4 members (at most 64)  0.455 rounds/s  0.00183 GB/s",
      "2 parameters  803.8 kB a slot  1 bucket of 8.4 MB  1 group  2 reducer threads  fingerprint fedcba9876543210",
      "round 812 is open for 2.1 s: 3 of 4 workers have committed; waiting for worker 3 (pid 4711, last commit 2.3 s",
      "ago)",
      "",
      "rank  state   buckets  last commit  round   pid   uid  from round  label",
      "   0  member      1/1        2.0 s    812  4708  1000           1  train",
      "   1  member      1/1        2.0 s    812  4709  1000           1  train",
      "   2  member      1/1        2.0 s    812  4710  1000           1  train",
      "   3  member      0/1        2.3 s    812  4711  1000           1  train",
      "",
      "round  status  from  weight  spread  last rank  reduce  norm  non-finite",
      "  811  ok       4/4     256   36 ms          3  3.0 ms     2  -",
      "  810  ok       4/4     256   36 ms          3  3.0 ms     2  -",
      "",
      "  ago  round  event  rank   pid  text",
      "5.0 s    800  died      2  4710  killed by signal 9",
  };
  CHECK(joined(lines) == joined(expected));
}

TEST_CASE("no line is wider than the view, at any width") {
  Snapshot snapshot = many_workers();
  snapshot.members[1].label = "\u8a13\u7df4\u8a13\u7df4\u8a13\u7df4 \U0001f600";
  for (std::size_t width = 1; width <= 200; ++width) {
    const Lines lines = render(snapshot, small_layout(), {width, 0, false});
    CAPTURE(width);
    CHECK(widest(lines) <= width);
  }
}

TEST_CASE("even 20 columns show ranks, and which round is open") {
  const Lines lines = render(straggler(), small_layout(), {20, 0, false});
  CHECK(has_line_with(lines, "812 open for 2.1 s"));
  CHECK(has_line_with(lines, "   3  member"));
}

TEST_CASE("there are never more lines than the view has") {
  for (std::size_t height = 1; height <= 300; ++height) {
    CAPTURE(height);
    CHECK(render(many_workers(), small_layout(), {80, height, false}).size() <= height);
  }
}

TEST_CASE("of too many workers those that are waited for are shown first") {
  const Lines lines = render(many_workers(), small_layout(), {100, 24, false});
  CHECK(lines.size() == 24);
  CHECK(has_line_with(lines, "   3  member      0/1"));
  CHECK(has_line_with(lines, " 200  member      0/1"));
  CHECK(has_line_with(lines, " more workers)"));
}

TEST_CASE("256 workers are all shown where nothing limits the height") {
  const Lines lines = render(many_workers(), small_layout(), {100, 0, false});
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line.find("  train") != std::string::npos; }) == 256);
  CHECK_FALSE(has_line_with(lines, "more worker"));
}

TEST_CASE("without members and rounds the header and the sentence remain") {
  Snapshot snapshot = straggler();
  snapshot.members.clear(), snapshot.rounds.clear(), snapshot.closed_round = 0, snapshot.opened_ns = 0, snapshot.open_members = 0;
  const Lines lines = render(snapshot, small_layout(), {120, 0, false});
  CHECK(lines.size() == 4);
  CHECK(lines[1] == "round 0 closed  1 open  0 members (at most 64)  0 rounds/s  0 GB/s");
}

TEST_CASE("hostile labels, names and events cannot leave their cell") {
  Snapshot snapshot = straggler();
  snapshot.instance = "a\nb\x1b[2J";
  snapshot.members[0].label = "\x1b]0;owned\x07\r\n\u202e\xff";
  snapshot.events = {event(0, EventKind::died, 0, std::string(200, '\n'))};
  const Lines lines = render(snapshot, layout_of({parameter("w", {1}, "g\u202e2J"), parameter("v", {1})}), {4000, 0, false});
  CHECK(is_plain(lines));
  CHECK(has_line_with(lines, "gradshm a\\x0ab\\x1b[2J"));
  CHECK(has_line_with(lines, "\\x1b]0;owned\\x07\\x0d\\x0a\\xe2\\x80\\xae\\xff"));
}

TEST_CASE("an event's text is left out where its name says it, and marked where it was cut") {
  Snapshot snapshot = straggler();
  snapshot.events = {event(0, EventKind::left, 0, "left"), event(1, EventKind::joined, 1, "joined with a part of the layout"),
                     event(2, EventKind::refused, 2, std::string(90, 'x') + "\u00e9")};
  snapshot.events[2].event.text[sizeof(Event::text) - 1] = '\0';
  const Lines lines = render(snapshot, small_layout(), {200, 0, false});
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) { return line.find("  left  ") != std::string::npos && line.ends_with("  4708"); }));
  CHECK(has_line_with(lines, "joined with a part of the layout"));
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) { return line.ends_with("  " + std::string(90, 'x') + "..."); }));
}

TEST_CASE("words out of range do not disturb the table") {
  Snapshot snapshot = straggler();
  snapshot.state = static_cast<ServerState>(99), snapshot.op = -7, snapshot.closed_round = ~0ull;
  snapshot.members[0].state = static_cast<MemberState>(77), snapshot.members[0].rank = -5, snapshot.members[1].last_commit_ns = ~0ull;
  snapshot.rounds[0].record.status = 12345, snapshot.rounds[0].group_weights.clear(), snapshot.rounds[1].record.sum_of_squares = -1;
  snapshot.events = {event(0, static_cast<EventKind>(1234), -9, "")};
  CHECK(is_plain(render(snapshot, small_layout(), {120, 0, false})));
}

TEST_CASE("norms and weights that are no numbers, and who brought them, are shown") {
  Snapshot snapshot = straggler();
  RoundRecord& record = snapshot.rounds[0].record;
  record.sum_of_squares = std::nan(""), record.nonfinite_result = 12'345, record.nonfinite_ranks[0] = 0b1011;
  snapshot.rounds[1].record.sum_of_squares = std::numeric_limits<double>::infinity();
  const Lines lines = render(snapshot, small_layout(), {120, 0, false});
  CHECK(has_line_with(lines, "nan  12,345 (ranks 0-1,3)"));
  CHECK(has_line_with(lines, "inf  -"));
}

TEST_CASE("up to three groups have a column of weights each, more have none") {
  Snapshot snapshot = straggler();
  for (RoundSnapshot& round : snapshot.rounds) round.group_weights = {1, 2.5, 3};
  std::vector<Parameter> parameters{parameter("a", {1}), parameter("b", {1}, "policy"), parameter("c", {1}, "critic")};
  const Lines three = render(snapshot, layout_of(parameters), {120, 0, false});
  CHECK(has_line_with(three, "from  w:default  w:policy  w:critic  spread"));
  CHECK(has_line_with(three, " 1       2.5         3 "));
  parameters.push_back(parameter("d", {1}, "other"));
  for (RoundSnapshot& round : snapshot.rounds) round.group_weights = {1, 2.5, 3, 4};
  CHECK(has_line_with(render(snapshot, layout_of(parameters), {120, 0, false}), "from  spread"));
}

TEST_CASE("an empty round and one with another status say so") {
  Snapshot snapshot = straggler();
  snapshot.rounds[0].record.status = GRADSHM_EMPTY, snapshot.rounds[0].record.contributor_count = 0;
  CHECK(has_line_with(render(snapshot, small_layout(), {120, 0, false}), "  811  EMPTY    0/4"));
}

TEST_CASE("colour goes around whole lines: without the codes the text is the same") {
  Snapshot snapshot = straggler();
  snapshot.members[1].state = MemberState::gone;
  const Lines plain = render(snapshot, small_layout(), {100, 0, false});
  Lines painted = render(snapshot, small_layout(), {100, 0, true});
  REQUIRE(painted.size() == plain.size());
  CHECK(has_line_with(painted, "\x1b[1;31mround 812 is open"));
  for (std::string& line : painted) {
    if (!line.starts_with('\x1b')) continue;
    line = line.substr(line.find('m') + 1);
    CHECK(line.ends_with("\x1b[0m"));
    line.resize(line.size() - 4);
  }
  CHECK(painted == plain);
}

TEST_CASE("of a dead server its last beacon is shown, and what to do") {
  BeaconData beacon;
  beacon.pid = 4700, beacon.closed_round = 811, beacon.member_ranks[0] = 0x8f, beacon.parameters = 62, beacon.gradient_bytes = 87'200'000;
  beacon.progress_ns = kTaken - 12 * kSecond;
  std::string("na\x1bme").copy(beacon.name, sizeof beacon.name);
  std::string("/run/gradshm/name/sock").copy(beacon.socket_path, sizeof beacon.socket_path);
  const Lines lines = render_dead(beacon, kTaken, {200, 0, false});
  CHECK(is_plain(lines));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].starts_with("gradshm na\\x1bme  DEAD 12 s  pid 4700"));
  CHECK(lines[1].find("round 811 closed, 5 workers (ranks 0-3,7), 62 parameters, 87.2 MB a slot") != std::string::npos);
  CHECK(lines[2] == "socket /run/gradshm/name/sock");
  CHECK(lines[3].find("gradshmd --name na\\x1bme") != std::string::npos);
  for (const std::string& line : render_dead(beacon, kTaken, {30, 0, false})) CHECK(line.size() <= 30);
  CHECK(render_dead(beacon, kTaken, {30, 3, false}).size() == 3);
  CHECK(render_dead(beacon, kTaken, {200, 0, true})[0].starts_with("\x1b[1m"));
}
