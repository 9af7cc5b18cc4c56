#include "top_json.hpp"

#include <cmath>

#include "base/text.hpp"
#include "cli_beacon.hpp"
#include "cli_text.hpp"
#include "top_words.hpp"

namespace gradshm::tools {
using core::Snapshot;
using nlohmann::ordered_json;
namespace {

// JSON has neither NaN nor infinity.
ordered_json finite_or_null(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

ordered_json daemon_json(const Snapshot& snapshot) {
  return {{"pid", snapshot.daemon_pid},
          {"alive", snapshot.daemon_alive},
          {"state", core::to_string(snapshot.state)},
          {"started_ns", snapshot.started_ns},
          {"progress_ns", snapshot.progress_ns},
          {"op", core::op_name(snapshot.op)},
          {"max_workers", snapshot.max_workers},
          {"expect", snapshot.expect},
          {"reducer_threads", snapshot.reducer_threads},
          {"bytes_reduced", snapshot.bytes_reduced}};
}

ordered_json layout_json(const Snapshot& snapshot, const core::Layout& layout) {
  ordered_json groups = ordered_json::array();
  for (const std::string& group : layout.groups()) groups.push_back(core::escape(group));
  return {{"fingerprint", core::format_hex(snapshot.fingerprint)},
          {"parameters", layout.parameters().size()},
          {"gradient_bytes", snapshot.gradient_bytes},
          {"bucket_bytes", snapshot.bucket_bytes},
          {"groups", groups}};
}

ordered_json open_json(const Snapshot& snapshot) {
  ordered_json waiting_for = ordered_json::array();
  for (const core::MemberSnapshot* member : late_members(snapshot)) waiting_for.push_back(member->rank);
  for (const core::AwaitedWorker& worker : snapshot.awaited) waiting_for.push_back(worker.rank);
  const Rates rates = rates_of(snapshot);
  return {{"closed_round", snapshot.closed_round},
          {"open_round", snapshot.closed_round + 1},
          {"opened_ns", snapshot.opened_ns},
          {"first_commit_ns", snapshot.first_commit_ns},
          {"members", snapshot.open_members},
          {"waiting_for", waiting_for},
          {"sentence", state_sentence(snapshot)},
          {"rounds_per_second", rates.rounds_per_second},
          {"bytes_per_second", rates.bytes_per_second}};
}

ordered_json worker_json(const core::MemberSnapshot& member) {
  return {{"rank", member.rank},
          {"generation", member.generation},
          {"state", core::to_string(member.state)},
          {"pid", member.pid},
          {"uid", member.uid},
          {"label", core::escape(member.label)},
          {"partial", member.partial},
          {"first_round", member.first_round},
          {"arrived_buckets", member.arrived_buckets},
          {"joined_ns", member.joined_ns},
          {"last_commit_ns", member.last_commit_ns},
          {"last_commit_round", member.last_commit_round}};
}

ordered_json bucket_json(const core::BucketProgress& bucket) {
  return {{"reduced_round", bucket.reduced_round}, {"arrived", bucket.arrived}, {"reductions", bucket.reductions}};
}

ordered_json nonfinite_json(const core::RoundRecord& record) {
  ordered_json ranks = ordered_json::array();
  for (const int rank : ranks_of(record.nonfinite_ranks)) ranks.push_back({{"rank", rank}, {"elements", record.nonfinite_by_rank[rank]}});
  return ranks;
}

ordered_json round_json(const core::RoundSnapshot& round) {
  const core::RoundRecord& record = round.record;
  ordered_json weights = ordered_json::array();
  for (const double weight : round.group_weights) weights.push_back(finite_or_null(weight));
  const double norm = std::sqrt(record.sum_of_squares);
  return {{"round", record.round},
          {"status", record.status},
          {"empty", record.status == GRADSHM_EMPTY},
          {"members", ranks_of(record.members)},
          {"contributors", ranks_of(record.contributors)},
          {"last_rank", record.last_rank},
          {"group_weights", weights},
          {"sum_of_squares", finite_or_null(record.sum_of_squares)},
          {"norm", finite_or_null(norm)},
          {"norm_is_finite", std::isfinite(norm)},
          {"nonfinite_result", record.nonfinite_result},
          {"nonfinite_workers", nonfinite_json(record)},
          {"first_commit_ns", record.first_commit_ns},
          {"last_commit_ns", record.last_commit_ns},
          {"closed_ns", record.closed_ns},
          {"reduce_ns", record.reduce_ns}};
}

ordered_json event_json(const core::EventSnapshot& event) {
  return {{"number", event.number},
          {"time_ns", event.event.time_ns},
          {"round", event.event.round},
          {"kind", core::to_string(static_cast<core::EventKind>(event.event.kind))},
          {"rank", event.event.rank},
          {"pid", event.event.pid},
          {"text", core::escape(text_of(event.event.text))}};
}

template <class Items, class Function>
ordered_json list(const Items& items, Function&& to_json) {
  ordered_json array = ordered_json::array();
  for (const auto& item : items) array.push_back(to_json(item));
  return array;
}

}  // namespace

ordered_json snapshot_json(const Snapshot& snapshot, const core::Layout& layout) {
  return {{"schema", kJsonSchema},
          {"state", is_over(snapshot) ? "dead" : "live"},
          {"instance", core::escape(snapshot.instance)},
          {"incarnation", core::format_hex(snapshot.incarnation)},
          {"taken_ns", snapshot.taken_ns},
          {"daemon", daemon_json(snapshot)},
          {"layout", layout_json(snapshot, layout)},
          {"open", open_json(snapshot)},
          {"workers", list(snapshot.members, worker_json)},
          {"buckets", list(snapshot.buckets, bucket_json)},
          {"rounds", list(snapshot.rounds, round_json)},
          {"events", list(snapshot.events, event_json)}};
}

ordered_json beacon_document(const core::BeaconData& beacon, bool alive, std::uint64_t now_ns) {
  const std::string name = text_of(beacon.name);
  return {{"schema", kJsonSchema},
          {"state", alive ? "no-layout" : "dead"},
          {"instance", core::escape(name)},
          {"taken_ns", now_ns},
          {"silent_ns", elapsed_ns(now_ns, beacon.progress_ns)},
          {"sentence", alive ? waiting_sentence(beacon) : dead_sentence(beacon, now_ns) + "; " + what_to_do(name)},
          {"beacon", beacon_json(beacon, alive)}};
}

std::string to_line(const ordered_json& document) { return document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"; }

}  // namespace gradshm::tools
