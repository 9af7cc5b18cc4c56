// What a snapshot means, in values and sentences: who is late, how fast it goes.
#pragma once

#include <string>
#include <vector>

#include "client/snapshot.hpp"

namespace gradshm::tools {

// The members that the open round waits for, by rank; those that a restarted server waits for are in Snapshot::awaited.
[[nodiscard]] std::vector<const core::MemberSnapshot*> late_members(const core::Snapshot& snapshot);
[[nodiscard]] std::size_t members_of_open_round(const core::Snapshot& snapshot);
// The server has ended, one way or the other: there will be no other picture of it.
[[nodiscard]] bool is_over(const core::Snapshot& snapshot);
// Somebody committed more than a second ago and others still have not, or a restarted server waits for workers, or it is dead: worth a colour.
[[nodiscard]] bool is_stuck(const core::Snapshot& snapshot);

// "round 812 is open for 2.1 s: 3 of 4 workers have committed; waiting for worker 3 (pid 4711, last commit 2.3 s ago)"
[[nodiscard]] std::string state_sentence(const core::Snapshot& snapshot);

struct Rates {
  double rounds_per_second = 0;
  double bytes_per_second = 0;  // slots read and results written
};
// Over the kept records up to now, so that they fall while a round hangs; 0 with fewer than two records.
[[nodiscard]] Rates rates_of(const core::Snapshot& snapshot);

// A server that is not there any more, or not ready yet, by what its beacon says.
[[nodiscard]] std::string dead_for(std::uint64_t now_ns, std::uint64_t progress_ns);  // "DEAD 12 s": since its last sign of life
[[nodiscard]] std::string dead_sentence(const core::BeaconData& beacon, std::uint64_t now_ns);
// `op`: the dead server's, as --op takes it; "" = unknown: the beacon does not say.
[[nodiscard]] std::string what_to_do(const std::string& instance, const std::string& op = "");
[[nodiscard]] std::string waiting_sentence(const core::BeaconData& beacon);

}  // namespace gradshm::tools
