// Snapshots made by hand.
#pragma once

#include <string>
#include <vector>

#include "client/snapshot.hpp"

namespace gradshm::tools {

inline constexpr std::uint64_t kSecond = 1'000'000'000, kMillisecond = 1'000'000;
inline constexpr std::uint64_t kTaken = 1000 * kSecond;

inline core::Parameter parameter(const std::string& name, std::vector<std::int64_t> shape, const std::string& group = "") {
  core::Parameter made;
  made.name = name, made.shape = std::move(shape), made.group = group;
  return made;
}

inline core::Layout layout_of(const std::vector<core::Parameter>& parameters, const core::LayoutOptions& options = {}) {
  core::Manifest manifest;
  for (const core::Parameter& one : parameters) manifest.add(one);
  return {std::move(manifest), options};
}

inline core::Layout small_layout() { return layout_of({parameter("fc1.weight", {256, 784}), parameter("fc1.bias", {256})}); }

inline core::MemberSnapshot member(int rank, unsigned arrived_buckets, std::uint64_t last_commit_ns) {
  core::MemberSnapshot made;
  made.rank = rank, made.generation = 1 + static_cast<std::uint64_t>(rank), made.state = core::MemberState::member;
  made.pid = 4708 + rank, made.uid = 1000, made.first_round = 1, made.arrived_buckets = arrived_buckets;
  made.joined_ns = kTaken - 100 * kSecond, made.last_commit_ns = last_commit_ns, made.last_commit_round = last_commit_ns == 0 ? 0 : 812;
  made.label = "train";
  return made;
}

inline core::RoundSnapshot closed_round(std::uint64_t number, std::uint64_t closed_ns, std::vector<double> weights = {256}) {
  core::RoundSnapshot made;
  core::RoundRecord& record = made.record;
  record.round = number, record.status = GRADSHM_OK, record.member_count = 4, record.contributor_count = 4, record.last_rank = 3;
  record.members[0] = record.contributors[0] = 0xf;
  record.sum_of_squares = 4, record.closed_ns = closed_ns, record.reduce_ns = 3 * kMillisecond;
  record.first_commit_ns = closed_ns - 40 * kMillisecond, record.last_commit_ns = closed_ns - 4 * kMillisecond;
  made.group_weights = std::move(weights);
  return made;
}

// Round 812 is open for 2.1 s; ranks 0 to 2 of 4 have committed.
inline core::Snapshot straggler() {
  core::Snapshot snapshot;
  snapshot.instance = "default", snapshot.incarnation = 0x1f2e3d4c5b6a7988, snapshot.fingerprint = 0xfedcba9876543210;
  snapshot.daemon_pid = 4700, snapshot.op = GRADSHM_MEAN, snapshot.max_workers = 64, snapshot.expect = 4, snapshot.reducer_threads = 2;
  snapshot.gradient_bytes = 803'840, snapshot.bucket_bytes = 8u << 20;
  snapshot.taken_ns = kTaken, snapshot.started_ns = kTaken - 192 * kSecond, snapshot.progress_ns = kTaken - kSecond / 2;
  snapshot.opened_ns = kTaken - 2100 * kMillisecond, snapshot.first_commit_ns = kTaken - 2050 * kMillisecond;
  snapshot.closed_round = 811, snapshot.open_members = 4, snapshot.bytes_reduced = 3'000'000'000'000'000;
  snapshot.buckets = {{811, 3, 811}};
  for (int rank = 0; rank < 3; ++rank) snapshot.members.push_back(member(rank, 1, kTaken - 2 * kSecond));
  snapshot.members.push_back(member(3, 0, kTaken - 2300 * kMillisecond));
  for (std::uint64_t i = 0; i < 10; ++i) snapshot.rounds.push_back(closed_round(811 - i, kTaken - 2100 * kMillisecond - i * 100 * kMillisecond));
  return snapshot;
}

inline core::EventSnapshot event(std::uint64_t number, core::EventKind kind, int rank, const std::string& text) {
  core::EventSnapshot made{number, {}};
  made.event.time_ns = kTaken - 5 * kSecond, made.event.round = 800, made.event.kind = static_cast<std::uint32_t>(kind);
  made.event.rank = rank, made.event.pid = 4708 + rank;
  text.copy(made.event.text, sizeof made.event.text);  // a long one lacks its final zero
  return made;
}

}  // namespace gradshm::tools
