#include "top_sections.hpp"

#include <cmath>
#include <cstring>
#include <string_view>

#include "base/text.hpp"
#include "cli_text.hpp"
#include "top_words.hpp"

namespace gradshm::tools {
using core::Snapshot;
namespace {

constexpr std::size_t kWeightColumns = 3;  // with more groups than that weights are for --json
constexpr Column::Align kLeft = Column::Align::left, kRight = Column::Align::right;

std::string state_word(const Snapshot& snapshot) {
  if (snapshot.state == core::ServerState::stopped) return "STOPPED";
  return snapshot.daemon_alive ? core::to_string(snapshot.state) : dead_for(snapshot.taken_ns, snapshot.progress_ns);
}

std::string ago(const Snapshot& snapshot, std::uint64_t ns) { return ns == 0 ? "-" : format_duration(elapsed_ns(snapshot.taken_ns, ns)); }

std::string or_dash(std::uint64_t value) { return value == 0 ? "-" : std::to_string(value); }

std::string nonfinite_text(const core::RoundRecord& record) {
  const std::vector<int> ranks = ranks_of(record.nonfinite_ranks);
  if (record.nonfinite_result == 0 && ranks.empty()) return "-";
  return core::format_count(record.nonfinite_result) + (ranks.empty() ? "" : " (ranks " + format_ranks(ranks) + ")");
}

std::string status_word(const core::RoundRecord& record) {
  return record.status == GRADSHM_OK ? "ok" : record.status == GRADSHM_EMPTY ? "EMPTY" : std::to_string(record.status);
}

std::string group_title(const core::Layout& layout, std::size_t group) {
  if (layout.groups().size() == 1) return "weight";
  const std::string name = core::escape(layout.groups()[group]);
  return "w:" + clip(name.empty() ? "default" : name, 12);
}

std::size_t weight_columns(const core::Layout& layout) { return layout.groups().size() <= kWeightColumns ? layout.groups().size() : 0; }

// What the event's name does not say already. One that fills its array was cut, perhaps inside a character.
std::string event_text(const core::Event& event, std::string_view name) {
  constexpr std::size_t kMost = sizeof event.text - 1;
  std::string_view text(event.text, strnlen(event.text, sizeof event.text));
  if (text == name) return "";
  if (text.size() < kMost) return core::escape(text);
  text = text.substr(0, kMost);
  for (std::size_t cut = 1; cut <= 3 && !core::is_utf8(text); ++cut)
    if (const std::string_view whole = text.substr(0, text.size() - cut); core::is_utf8(whole)) text = whole;
  return core::escape(text) + "...";
}

}  // namespace

std::vector<std::vector<std::string>> header_items(const Snapshot& snapshot, const core::Layout& layout) {
  const Rates rates = rates_of(snapshot);
  const auto gigabytes = format_number(rates.bytes_per_second / 1e9) + " GB/s";
  std::vector<std::string> server{"gradshm " + core::escape(snapshot.instance), state_word(snapshot), "pid " + std::to_string(snapshot.daemon_pid),
                                  "up " + ago(snapshot, snapshot.started_ns), "op " + std::string(core::op_name(snapshot.op)),
                                  "incarnation " + core::format_hex(snapshot.incarnation)};
  std::vector<std::string> rounds{"round " + std::to_string(snapshot.closed_round) + " closed",
                                  std::to_string(snapshot.closed_round + 1) + " open" + (snapshot.opened_ns == 0 ? "" : " for " + ago(snapshot, snapshot.opened_ns)),
                                  core::plural(snapshot.open_members, "member") + " (at most " + std::to_string(snapshot.max_workers) + ")",
                                  format_number(rates.rounds_per_second) + " rounds/s", gigabytes};
  std::vector<std::string> sizes{core::plural(layout.parameters().size(), "parameter"), core::format_bytes(snapshot.gradient_bytes) + " a slot",
                                 core::plural(snapshot.buckets.size(), "bucket") + " of " + core::format_bytes(snapshot.bucket_bytes),
                                 core::plural(layout.groups().size(), "group"), core::plural(snapshot.reducer_threads, "reducer thread"),
                                 "fingerprint " + core::format_hex(snapshot.fingerprint)};
  return {std::move(server), std::move(rounds), std::move(sizes)};
}

std::vector<Column> worker_columns() {
  return {{"rank", kRight, 9, 0}, {"state", kLeft, 8, 0}, {"buckets", kRight, 7, 0}, {"last commit", kRight, 6, 0},
          {"round", kRight, 4, 0}, {"pid", kRight, 5, 0}, {"uid", kRight, 1, 0}, {"from round", kRight, 2, 0}, {"label", kLeft, 3, 6}};
}

Row worker_row(const Snapshot& snapshot, const core::MemberSnapshot& member) {
  const std::string state = std::string(core::to_string(member.state)) + (member.partial ? " (partial)" : "");
  return {std::to_string(member.rank), state, std::to_string(member.arrived_buckets) + "/" + std::to_string(snapshot.buckets.size()),
          ago(snapshot, member.last_commit_ns), or_dash(member.last_commit_round), std::to_string(member.pid), std::to_string(member.uid),
          or_dash(member.first_round), core::escape(member.label)};
}

std::vector<Column> round_columns(const core::Layout& layout) {
  std::vector<Column> columns{{"round", kRight, 9, 0}, {"status", kLeft, 8, 0}, {"from", kRight, 7, 0}};
  for (std::size_t group = 0; group < weight_columns(layout); ++group) columns.push_back({group_title(layout, group), kRight, 2, 0});
  columns.insert(columns.end(), {{"spread", kRight, 6, 0}, {"last rank", kRight, 5, 0}, {"reduce", kRight, 4, 0}, {"norm", kRight, 3, 0}, {"non-finite", kLeft, 7, 3}});
  return columns;
}

Row round_row(const core::RoundSnapshot& round, const core::Layout& layout) {
  const core::RoundRecord& record = round.record;
  Row row{std::to_string(record.round), status_word(record), std::to_string(record.contributor_count) + "/" + std::to_string(record.member_count)};
  for (std::size_t group = 0; group < weight_columns(layout); ++group)
    row.push_back(group < round.group_weights.size() ? format_number(round.group_weights[group], 6) : "-");
  const std::string spread = record.first_commit_ns == 0 ? "-" : format_duration(elapsed_ns(record.last_commit_ns, record.first_commit_ns));
  row.insert(row.end(), {spread, record.last_rank < 0 ? "-" : std::to_string(record.last_rank), format_duration(record.reduce_ns),
                         format_number(std::sqrt(record.sum_of_squares), 4), nonfinite_text(record)});
  return row;
}

std::vector<Column> event_columns() {
  return {{"ago", kRight, 9, 0}, {"round", kRight, 6, 0}, {"event", kLeft, 8, 0}, {"rank", kRight, 7, 0}, {"pid", kRight, 4, 0}, {"text", kLeft, 5, 10}};
}

Row event_row(const Snapshot& snapshot, const core::Event& event) {
  const char* const name = core::to_string(static_cast<core::EventKind>(event.kind));
  return {ago(snapshot, event.time_ns), std::to_string(event.round), name, event.rank < 0 ? "-" : std::to_string(event.rank),
          event.pid <= 0 ? "-" : std::to_string(event.pid), event_text(event, name)};
}

}  // namespace gradshm::tools
