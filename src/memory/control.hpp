// The control object: all that the server says about rounds and members. Written by the server only, mapped read-only by everybody else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout/layout.hpp"
#include "memory/shared.hpp"

namespace gradshm::core {

inline constexpr std::size_t kRecords = 64;   // closed rounds kept
inline constexpr std::size_t kEvents = 256;
inline constexpr std::size_t kLabelBytes = 32;
inline constexpr std::size_t kInstanceNameBytes = 72;

struct ControlHeader {
  ObjectHeader object;
  std::uint32_t buckets = 0, groups = 0, parameters = 0;
  std::uint32_t op = 0;           // gradshm_op_t
  std::uint32_t max_workers = 0, expect = 0;
  std::int32_t daemon_pid = 0;
  std::uint32_t reducer_threads = 0;
  std::uint64_t pid_namespace = 0;  // inode of the server's; the pids of members mean nothing in another one
  std::uint64_t started_ns = 0;   // CLOCK_MONOTONIC
  std::uint64_t gradient_bytes = 0;  // of one slot
  std::uint64_t bucket_bytes = 0;
  std::int64_t rejoin_timeout_ns = 0;  // how long workers look for a successor if this server is killed
  std::int64_t round_deadline_ns = 0;  // 0 = none
  std::uint64_t words_offset = 0, members_offset = 0, buckets_offset = 0, records_offset = 0, weights_offset = 0, events_offset = 0;
  char instance[kInstanceNameBytes] = {};
};

enum class ServerState : std::uint32_t { running = 1, draining = 2, stopped = 3 };

// Each word on its own line: a store to one never slows a reader of another.
struct ControlWords {
  alignas(kLineBytes) std::uint64_t closed_round = 0;  // grows; the open round is this + 1
  alignas(kLineBytes) std::uint32_t wake_seq = 0;      // the futex; changes with every close and every membership change
  alignas(kLineBytes) std::uint32_t idle = 0;          // 1 while the server may sleep: who commits must ring
  alignas(kLineBytes) std::uint32_t state = 0;         // ServerState
  std::uint32_t members = 0;                           // of the open round
  std::uint64_t progress_ns = 0;                       // last turn of the server's loop, CLOCK_MONOTONIC, at most once a second
  std::uint64_t opened_ns = 0;                         // when the open round opened
  std::uint64_t first_commit_ns = 0;                   // first commit to the open round, 0 = none
  std::uint64_t events = 0;                            // written so far
  std::uint64_t bytes_reduced = 0;                     // read and written by the reducer since start
};

enum class MemberState : std::uint8_t { free = 0, attached = 1, ready = 2, member = 3, paused = 4, gone = 5 };

// Indexed by rank.
struct MemberEntry {
  alignas(kLineBytes) std::uint64_t word = 0;  // generation << 8 | MemberState
  std::uint64_t first_round = 0;               // it takes part from this round on
  std::uint64_t sequence = 0;                  // odd while what follows changes
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t partial = 0;
  std::uint32_t arrived = 0;                   // buckets committed to the open round
  std::uint64_t joined_ns = 0, last_commit_ns = 0, last_commit_round = 0;
  char label[kLabelBytes] = {};
};
static_assert(sizeof(MemberEntry) == kLineBytes);

struct BucketProgress {
  std::uint64_t reduced_round = 0;  // information only: results may be used after the close
  std::uint32_t arrived = 0;        // members that have committed it to the open round
  std::uint32_t reductions = 0;     // of it, since start; more than rounds = some were redone
};

struct RoundRecord {
  std::uint64_t sequence = 0;  // odd while it changes
  std::uint64_t round = 0;
  std::int32_t status = 0;     // GRADSHM_OK or GRADSHM_EMPTY
  std::uint32_t member_count = 0, contributor_count = 0;
  std::int32_t last_rank = -1;
  std::uint64_t members[kRankWords] = {}, contributors[kRankWords] = {}, nonfinite_ranks[kRankWords] = {};
  double sum_of_squares = 0;
  std::uint64_t nonfinite_result = 0;
  std::uint64_t first_commit_ns = 0, last_commit_ns = 0, closed_ns = 0, reduce_ns = 0;
  std::uint64_t nonfinite_by_rank[kMaxWorkers] = {};
};

enum class EventKind : std::uint32_t { started = 1, joined, admitted, left, died, evicted, paused, resumed, draining, refused, rejoined, missing };

struct Event {
  std::uint64_t sequence = 0;  // odd while it changes; 2 * (number + 1) when written
  std::uint64_t time_ns = 0;   // CLOCK_MONOTONIC
  std::uint64_t round = 0;     // the open one then
  std::uint32_t kind = 0;      // EventKind
  std::int32_t rank = -1;
  std::int32_t pid = 0;
  char text[92] = {};
};
static_assert(sizeof(Event) == kLineBytes);

struct ControlShape {
  std::uint64_t words = 0, members = 0, buckets = 0, records = 0, weights = 0, events = 0, total = 0;
};
[[nodiscard]] ControlShape control_shape(std::uint64_t buckets, std::uint64_t groups);

// A view of a mapped control object. The caller keeps the mapping.
struct Control {
  const ControlHeader* header = nullptr;
  ControlWords* words = nullptr;
  MemberEntry* members = nullptr;      // [kMaxWorkers]
  BucketProgress* buckets = nullptr;   // [header->buckets]
  RoundRecord* records = nullptr;      // [kRecords], by round mod kRecords
  double* group_weights = nullptr;     // [kRecords][groups], under the record's sequence
  Event* events = nullptr;             // [kEvents], by number mod kEvents
};
[[nodiscard]] Control control_view(std::byte* data, const ControlShape& shape) noexcept;

// Server: a fresh sealed object. `header` comes with everything but object and offsets filled in.
struct ControlObject {
  MemFd file;
  Mapping mapping;
  Control view;
};
[[nodiscard]] ControlObject create_control(ControlHeader header, std::uint64_t incarnation, std::uint64_t fingerprint);
// Client: maps read-only and checks. Throws Error(corrupt | incompatible). The view's pointers are for loads only.
[[nodiscard]] ControlObject open_control(MemFd file);

}  // namespace gradshm::core
