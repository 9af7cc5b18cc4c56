// A picture of an instance for tools: plain values, copied out of the control object by an observer. Reading disturbs nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "memory/beacon.hpp"
#include "memory/control.hpp"
#include "memory/result.hpp"

namespace gradshm::core {

struct MemberSnapshot {
  int rank = -1;
  std::uint64_t generation = 0;
  MemberState state = MemberState::free;
  int pid = 0;
  unsigned uid = 0;
  bool partial = false;
  std::uint64_t first_round = 0;
  unsigned arrived_buckets = 0;      // committed to the open round
  std::uint64_t joined_ns = 0, last_commit_ns = 0, last_commit_round = 0;  // CLOCK_MONOTONIC
  std::string label;                 // raw: escape before showing
};

struct RoundSnapshot {
  RoundRecord record;
  std::vector<double> group_weights;
};

// A worker of the killed server that the new one waits for.
struct AwaitedWorker {
  int rank = -1;
  int pid = 0;  // 0 = in another pid namespace
};

struct EventSnapshot {
  std::uint64_t number = 0;
  Event event;
};

struct Snapshot {
  std::string instance;
  std::uint64_t incarnation = 0, fingerprint = 0;
  int daemon_pid = 0;
  bool daemon_alive = true;
  ServerState state = ServerState::running;
  int op = 0;
  unsigned max_workers = 0, expect = 0, reducer_threads = 0;
  std::uint64_t gradient_bytes = 0, bucket_bytes = 0;
  std::uint64_t taken_ns = 0, started_ns = 0, progress_ns = 0, opened_ns = 0, first_commit_ns = 0;  // CLOCK_MONOTONIC; 0 = never
  std::uint64_t closed_round = 0;
  unsigned open_members = 0;         // members of the open round
  std::uint64_t bytes_reduced = 0;
  std::int64_t rejoin_timeout_ns = 0;
  std::vector<MemberSnapshot> members;        // everything but free entries, by rank
  std::vector<AwaitedWorker> awaited;         // by rank; none once the rounds go on
  std::vector<BucketProgress> buckets;
  std::vector<RoundSnapshot> rounds;          // newest first, only consistent records
  std::vector<EventSnapshot> events;          // oldest first, only consistent ones
};

// All workers that the beacon lists as taking part. While its server has no layout, that is whom it waits for after a restart.
[[nodiscard]] std::vector<AwaitedWorker> awaited_in(const BeaconData& beacon);
// The part of a snapshot that is read from the event ring.
void take_events(const Control& control, Snapshot& snapshot);

// One observer connection to a running server.
class Watcher {
 public:
  // Throws Error (no_server, incompatible, permission, ...).
  explicit Watcher(const std::string& instance);
  ~Watcher();
  Watcher(Watcher&&) noexcept;

  // nullptr: the server waits for its first worker to learn the layout; then there is no snapshot yet either.
  [[nodiscard]] const Layout* layout() const;
  [[nodiscard]] std::optional<Snapshot> take() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

[[nodiscard]] const char* to_string(MemberState state);
[[nodiscard]] const char* to_string(ServerState state);
[[nodiscard]] const char* to_string(EventKind kind);
[[nodiscard]] const char* op_name(int op);  // "sum", "mean", "weighted-mean"

}  // namespace gradshm::core
