#include "top_words.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "cli_beacon.hpp"
#include "cli_text.hpp"

namespace gradshm::tools {
using core::MemberSnapshot;
using core::MemberState;
using core::Snapshot;
namespace {

constexpr std::size_t kNamed = 4;  // late workers that the sentence names

bool takes_part(const Snapshot& snapshot, const MemberSnapshot& member) {
  return member.state == MemberState::member && member.first_round <= snapshot.closed_round + 1;
}

std::string describe(const Snapshot& snapshot, const MemberSnapshot& member) {
  std::string text = std::to_string(member.rank) + " (pid " + std::to_string(member.pid);
  if (member.arrived_buckets > 0) text += ", " + std::to_string(member.arrived_buckets) + " of " + core::plural(snapshot.buckets.size(), "bucket");
  if (member.last_commit_ns == 0) return text + ", no commit yet)";
  return text + ", last commit " + format_duration(elapsed_ns(snapshot.taken_ns, member.last_commit_ns)) + " ago)";
}

template <class Item, class Describe>
std::string name_some(const std::string& before, const std::vector<Item>& items, Describe&& describe) {
  std::string text = before + (items.size() == 1 ? " worker " : " workers ");
  for (std::size_t i = 0; i < std::min(items.size(), kNamed); ++i) text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + describe(items[i]);
  if (items.size() > kNamed) text += " and " + core::format_count(items.size() - kNamed) + " more";
  return text;
}

std::string name_awaited(const std::vector<core::AwaitedWorker>& awaited) {
  return name_some("for", awaited, [](const core::AwaitedWorker& worker) {
    return std::to_string(worker.rank) + (worker.pid > 0 ? " (pid " + std::to_string(worker.pid) + ")" : "");
  }) + " to come back after the restart";
}

std::string name_late(const Snapshot& snapshot, const std::vector<const MemberSnapshot*>& late) {
  return name_some("waiting for", late, [&](const MemberSnapshot* member) { return describe(snapshot, *member); });
}

bool came_back(const core::EventSnapshot& event) { return event.event.kind == static_cast<std::uint32_t>(core::EventKind::rejoined); }

// After a restart, before the rounds go on. Whom it waits for is known to its own user only.
bool is_held(const Snapshot& snapshot) {
  if (snapshot.opened_ns != 0) return false;
  const bool some_are_back = members_of_open_round(snapshot) > 0 && std::any_of(snapshot.events.begin(), snapshot.events.end(), came_back);
  return some_are_back || !snapshot.awaited.empty();
}

std::string held_sentence(const Snapshot& snapshot) {
  const std::string whom = snapshot.awaited.empty() ? "for workers to come back after the restart" : name_awaited(snapshot.awaited);
  const std::size_t back = members_of_open_round(snapshot);
  return "round " + std::to_string(snapshot.closed_round + 1) + " is not open yet: the server waits up to " +
         format_duration(static_cast<std::uint64_t>(snapshot.rejoin_timeout_ns)) + " " + whom + "; " + core::plural(back, "member") + (back == 1 ? " is" : " are") + " back";
}

std::string opening_sentence(const Snapshot& snapshot) {
  const auto count = [&](MemberState state) {
    return std::count_if(snapshot.members.begin(), snapshot.members.end(), [&](const MemberSnapshot& member) { return member.state == state; });
  };
  const auto ready = static_cast<std::uint64_t>(count(MemberState::ready)), attached = static_cast<std::uint64_t>(count(MemberState::attached));
  const std::string round = "round " + std::to_string(snapshot.closed_round + 1);
  std::string those = ready == 0 && attached == 0 ? "no worker is attached" : core::plural(ready, "worker") + (ready == 1 ? " is ready" : " are ready");
  if (attached > 0) those += ", " + core::format_count(attached) + (attached == 1 ? " is" : " are") + " not ready yet";
  if (snapshot.closed_round == 0) return round + " opens with " + core::plural(snapshot.expect, "ready worker") + "; " + those;
  return round + " has no members and waits for a ready worker; " + those;
}

}  // namespace

std::vector<const MemberSnapshot*> late_members(const Snapshot& snapshot) {
  std::vector<const MemberSnapshot*> late;
  if (is_held(snapshot)) return late;  // nobody can be late before it opens
  for (const MemberSnapshot& member : snapshot.members)
    if (takes_part(snapshot, member) && member.arrived_buckets < snapshot.buckets.size()) late.push_back(&member);
  return late;
}

std::size_t members_of_open_round(const Snapshot& snapshot) {
  return static_cast<std::size_t>(
      std::count_if(snapshot.members.begin(), snapshot.members.end(), [&](const MemberSnapshot& member) { return takes_part(snapshot, member); }));
}

bool is_over(const Snapshot& snapshot) { return !snapshot.daemon_alive || snapshot.state == core::ServerState::stopped; }

bool is_stuck(const Snapshot& snapshot) {
  if (is_over(snapshot) || !snapshot.awaited.empty()) return true;
  const bool long_ago = snapshot.first_commit_ns != 0 && elapsed_ns(snapshot.taken_ns, snapshot.first_commit_ns) > 1'000'000'000;
  return long_ago && !late_members(snapshot).empty();
}

std::string state_sentence(const Snapshot& snapshot) {
  const std::string round = "round " + std::to_string(snapshot.closed_round + 1);
  if (snapshot.state == core::ServerState::stopped) return "the server has stopped; " + round + " will not close";
  if (!snapshot.daemon_alive)
    return dead_for(snapshot.taken_ns, snapshot.progress_ns) + ": the server (pid " + std::to_string(snapshot.daemon_pid) + ") was killed; " + round +
           " waits for a new one; " + what_to_do(snapshot.instance, core::op_name(snapshot.op));
  if (is_held(snapshot)) return held_sentence(snapshot);
  const std::size_t members = members_of_open_round(snapshot);
  if (members == 0) return opening_sentence(snapshot);
  const auto late = late_members(snapshot);
  const std::string since = snapshot.opened_ns == 0 ? "" : " for " + format_duration(elapsed_ns(snapshot.taken_ns, snapshot.opened_ns));
  const std::string arrived = core::format_count(members - late.size()) + " of " + core::plural(members, "worker") + (members == 1 ? " has" : " have") + " committed; ";
  return round + " is open" + since + ": " + arrived + (late.empty() ? "summing" : name_late(snapshot, late));
}

Rates rates_of(const Snapshot& snapshot) {
  if (snapshot.rounds.size() < 2) return {};
  const core::RoundRecord& newest = snapshot.rounds.front().record;
  const core::RoundRecord& oldest = snapshot.rounds.back().record;
  const double seconds = static_cast<double>(elapsed_ns(std::max(snapshot.taken_ns, newest.closed_ns), oldest.closed_ns)) / 1e9;
  if (seconds <= 0 || newest.round <= oldest.round) return {};
  double bytes = 0;
  for (std::size_t i = 0; i + 1 < snapshot.rounds.size(); ++i)
    bytes += (1.0 + snapshot.rounds[i].record.contributor_count) * static_cast<double>(snapshot.gradient_bytes);
  return {static_cast<double>(newest.round - oldest.round) / seconds, bytes / seconds};
}

std::string dead_for(std::uint64_t now_ns, std::uint64_t progress_ns) { return "DEAD " + format_duration(elapsed_ns(now_ns, progress_ns)); }

std::string what_to_do(const std::string& instance, const std::string& op) {
  const std::string command = "gradshmd --name " + core::escape(instance);
  const std::string options = op.empty() ? command + ", with the --op and other options that it had" : command + " --op " + op + ", with the other options that it had";
  return "restart it under the same name with the same options: " + options + " (workers rejoin within their rejoin time-out)";
}

std::string dead_sentence(const core::BeaconData& beacon, std::uint64_t now_ns) {
  const std::vector<int> ranks = ranks_of(beacon.member_ranks);
  std::string workers = ranks.empty() ? "no workers" : core::plural(ranks.size(), "worker");
  if (!ranks.empty()) workers += (ranks.size() == 1 ? " (rank " : " (ranks ") + format_ranks(ranks) + ")";
  return dead_for(now_ns, beacon.progress_ns) + ": the server (pid " + std::to_string(beacon.pid) + ") was killed; its last beacon: round " +
         std::to_string(beacon.closed_round) + " closed, " + workers + ", " +
         core::plural(beacon.parameters, "parameter") + ", " + core::format_bytes(beacon.gradient_bytes) + " a slot";
}

std::string waiting_sentence(const core::BeaconData& beacon) {
  const std::string name = "'" + core::escape(text_of(beacon.name)) + "' waits";
  if (const auto awaited = core::awaited_in(beacon); !awaited.empty()) return name + " " + name_awaited(awaited);
  return name + " for its first worker, whose parameters will be the layout";
}

}  // namespace gradshm::tools
