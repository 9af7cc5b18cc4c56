// One worker incarnation as the server knows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory/control.hpp"
#include "memory/slot.hpp"
#include "protocol/atomics.hpp"

namespace gradshm::core {

// What a worker said of one bucket when it committed: read once from its slot, checked, kept in private memory.
struct Contribution {
  double weight = 1;
  PresenceKind presence = PresenceKind::none;
  std::vector<std::uint64_t> bits;  // of PresenceKind::bits

  [[nodiscard]] bool has(std::size_t position) const noexcept {
    if (presence != PresenceKind::bits) return presence == PresenceKind::all;
    return (bits[position / 64] >> (position % 64) & 1) != 0;
  }
};

struct Member {
  unsigned rank = 0;
  std::uint64_t generation = 0;
  MemberState state = MemberState::attached;
  std::uint64_t first_round = 0;
  int pid = 0;
  std::uint64_t pid_start = 0;  // tells a re-used pid; 0 = unknown
  unsigned uid = 0;
  std::string label;
  std::uint64_t joined_ns = 0;
  MemFd slot_file;    // until its pages are checked
  Mapping slot;       // read-only
  UniqueFd slot_reader;  // the same memory, for observers; empty where it could not be opened again
  UniqueFd doorbell;  // eventfd
  bool came_back = false;  // from a server that was killed
  bool partial = false;
  std::vector<bool> named;                   // partial: by parameter index, which ones it registered
  std::vector<bool> skips;                   // partial: buckets it has no parameter in
  std::vector<Contribution> contributions;   // of the open round, by bucket

  [[nodiscard]] const CommitBlock& block(const SlotShape& shape, std::size_t bucket) const noexcept {
    return *slot.at<const CommitBlock>(shape.blocks[bucket]);
  }
  [[nodiscard]] bool sleeps(const SlotShape& shape) const noexcept {
    // order: seq_cst, pairs with WorkerWords::wait's add to `waiting` before it looks again: one of the two sees the other (Dekker).
    return slot && load_seq_cst(slot.at<const SlotWords>(shape.words)->waiting) != 0;
  }
};

using MemberPtr = std::shared_ptr<Member>;

}  // namespace gradshm::core
