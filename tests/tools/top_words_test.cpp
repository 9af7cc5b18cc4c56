#include "top_words.hpp"

#include <doctest/doctest.h>

#include <string>

#include "snapshots.hpp"

using namespace gradshm::tools;
using namespace gradshm::core;

TEST_CASE("the sentence names the straggler") {
  CHECK(state_sentence(straggler()) ==
        "round 812 is open for 2.1 s: 3 of 4 workers have committed; waiting for worker 3 (pid 4711, last commit 2.3 s ago)");
}

TEST_CASE("a worker that has committed some buckets is late, and the sentence says how many") {
  Snapshot snapshot = straggler();
  snapshot.buckets.assign(11, {});
  for (MemberSnapshot& member : snapshot.members) member.arrived_buckets = 11;
  snapshot.members[1].arrived_buckets = 2;
  CHECK(state_sentence(snapshot) ==
        "round 812 is open for 2.1 s: 3 of 4 workers have committed; waiting for worker 1 (pid 4709, 2 of 11 buckets, last commit 2.0 s ago)");
}

TEST_CASE("a worker that never committed is shown as such") {
  Snapshot snapshot = straggler();
  snapshot.members[3].last_commit_ns = 0;
  CHECK(state_sentence(snapshot).ends_with("waiting for worker 3 (pid 4711, no commit yet)"));
}

TEST_CASE("two late workers are joined by and, of many the first four are named") {
  Snapshot snapshot = straggler();
  snapshot.members[1].arrived_buckets = 0;
  CHECK(state_sentence(snapshot).ends_with("waiting for workers 1 (pid 4709, last commit 2.0 s ago) and 3 (pid 4711, last commit 2.3 s ago)"));
  for (int rank = 4; rank < 256; ++rank) snapshot.members.push_back(member(rank, 0, 0));
  CHECK(late_members(snapshot).size() == 254);
  CHECK(state_sentence(snapshot).find("2 of 256 workers have committed; waiting for workers 1 (") != std::string::npos);
  CHECK(state_sentence(snapshot).ends_with("5 (pid 4713, no commit yet) and 250 more"));
}

TEST_CASE("when everybody has committed the sums are being made") {
  Snapshot snapshot = straggler();
  snapshot.members[3].arrived_buckets = 1;
  CHECK(state_sentence(snapshot) == "round 812 is open for 2.1 s: 4 of 4 workers have committed; summing");
}

TEST_CASE("paused, gone and later workers are not waited for") {
  Snapshot snapshot = straggler();
  snapshot.members[3].state = MemberState::paused;
  CHECK(late_members(snapshot).empty());
  snapshot.members[3].state = MemberState::member;
  snapshot.members[3].first_round = 813;
  CHECK(late_members(snapshot).empty());
  CHECK(members_of_open_round(snapshot) == 3);
}

TEST_CASE("before round 1 the sentence says how many ready workers there are") {
  Snapshot snapshot = straggler();
  snapshot.closed_round = 0;
  for (MemberSnapshot& member : snapshot.members) member.state = MemberState::ready;
  snapshot.members[0].state = MemberState::attached;
  CHECK(state_sentence(snapshot) == "round 1 opens with 4 ready workers; 3 workers are ready, 1 is not ready yet");
  snapshot.members.clear();
  CHECK(state_sentence(snapshot) == "round 1 opens with 4 ready workers; no worker is attached");
}

TEST_CASE("a round that all members left has no members") {
  Snapshot snapshot = straggler();
  snapshot.members.clear();
  CHECK(state_sentence(snapshot) == "round 812 has no members and waits for a ready worker; no worker is attached");
  snapshot.members.assign(2, member(0, 0, 0));
  for (MemberSnapshot& member : snapshot.members) member.state = MemberState::attached;
  CHECK(state_sentence(snapshot) == "round 812 has no members and waits for a ready worker; 0 workers are ready, 2 are not ready yet");
}

TEST_CASE("a dead server is DEAD, a stopped one has stopped") {
  Snapshot snapshot = straggler();
  CHECK_FALSE(is_over(snapshot));
  snapshot.daemon_alive = false;
  CHECK(is_over(snapshot));
  CHECK(state_sentence(snapshot) == "DEAD 500 ms: the server (pid 4700) was killed; round 812 waits for a new one; restart it under the same name with the same "
        "options: gradshmd --name default --op mean, with the other options that it had (workers rejoin within their rejoin time-out)");
  snapshot.state = ServerState::stopped;
  CHECK(state_sentence(snapshot) == "the server has stopped; round 812 will not close");
}

TEST_CASE("after a restart the missing are waited for, and nobody who is back is late") {
  Snapshot snapshot = straggler();
  snapshot.opened_ns = snapshot.first_commit_ns = 0, snapshot.rejoin_timeout_ns = 30 * kSecond;
  snapshot.members.resize(1);
  snapshot.members[0].arrived_buckets = 0;
  snapshot.awaited = {{1, 4709}, {5, 0}};
  CHECK(state_sentence(snapshot) ==
        "round 812 is not open yet: the server waits up to 30 s for workers 1 (pid 4709) and 5 to come back after the restart; 1 member is back");
  CHECK(late_members(snapshot).empty());
  CHECK(is_stuck(snapshot));
  snapshot.awaited.clear();  // another user's beacon is not read
  snapshot.events = {event(0, EventKind::rejoined, 0, "came back after round 811")};
  CHECK(state_sentence(snapshot).find("waits up to 30 s for workers to come back after the restart; 1 member is back") != std::string::npos);
  snapshot.opened_ns = kTaken - kSecond;
  CHECK(state_sentence(snapshot).find("waiting for worker 0 ") != std::string::npos);
}

TEST_CASE("while nobody is back the beacon says whom a new server waits for") {
  BeaconData beacon;
  std::string("default").copy(beacon.name, sizeof beacon.name);
  CHECK(waiting_sentence(beacon) == "'default' waits for its first worker, whose parameters will be the layout");
  beacon.listed[0] = {7, 1, 4708, 0};  // a paused one is not waited for
  beacon.listed[1] = {8, 1, 4709, 1};
  CHECK(waiting_sentence(beacon) == "'default' waits for worker 1 (pid 4709) to come back after the restart");
}

TEST_CASE("a late worker is worth a colour a second after the first commit") {
  Snapshot snapshot = straggler();
  CHECK(is_stuck(snapshot));
  snapshot.first_commit_ns = kTaken - kSecond / 2;
  CHECK_FALSE(is_stuck(snapshot));
  snapshot.first_commit_ns = 0;
  CHECK_FALSE(is_stuck(snapshot));
}

TEST_CASE("rates are taken over the kept rounds up to now") {
  Snapshot snapshot = straggler();  // 9 rounds from 3.0 s ago to now
  CHECK(rates_of(snapshot).rounds_per_second == doctest::Approx(3.0));
  CHECK(rates_of(snapshot).bytes_per_second == doctest::Approx(9 * 5 * 803'840 / 3.0));
  snapshot.taken_ns += 6 * kSecond;
  CHECK(rates_of(snapshot).rounds_per_second == doctest::Approx(1.0));
  snapshot.rounds.resize(1);
  CHECK(rates_of(snapshot).rounds_per_second == 0);
}

TEST_CASE("rates of records that make no sense are 0") {
  Snapshot snapshot = straggler();
  snapshot.rounds.back().record.closed_ns = ~0ull;
  CHECK(rates_of(snapshot).rounds_per_second == 0);
  snapshot.rounds.back().record.closed_ns = 0;
  snapshot.rounds.back().record.round = ~0ull;
  CHECK(rates_of(snapshot).rounds_per_second == 0);
}

TEST_CASE("a beacon tells of a dead server") {
  BeaconData beacon;
  beacon.pid = 4700, beacon.closed_round = 811, beacon.member_ranks[0] = 0x8f, beacon.parameters = 62, beacon.gradient_bytes = 87'200'000;
  beacon.progress_ns = kTaken - 12 * kSecond;
  CHECK(dead_sentence(beacon, kTaken) ==
        "DEAD 12 s: the server (pid 4700) was killed; its last beacon: round 811 closed, 5 workers (ranks 0-3,7), 62 parameters, 87.2 MB a slot");
  CHECK(what_to_do("default").find("gradshmd --name default, with the --op and other options that it had (") != std::string::npos);
  beacon.member_ranks[0] = 1;
  CHECK(dead_sentence(beacon, kTaken).find("1 worker (rank 0), ") != std::string::npos);
  beacon.member_ranks[0] = 0;
  CHECK(dead_sentence(beacon, kTaken).find("closed, no workers, ") != std::string::npos);
}
