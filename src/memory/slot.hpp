// The slot object: one worker incarnation's memory. Written by that worker only; the server maps it read-only and trusts no word of it.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.hpp"
#include "memory/shared.hpp"

namespace gradshm::core {

struct SlotHeader {
  ObjectHeader object;
  std::uint64_t generation = 0;
  std::uint64_t rank = 0;
};

struct SlotWords {
  alignas(kLineBytes) std::uint32_t waiting = 0;  // threads of this worker that sleep, or are about to, in wait
  std::uint32_t unused = 0;
};

enum class PresenceKind : std::uint64_t { none = 1, all = 2, bits = 3 };

// One a bucket; the presence bits, one a parameter of the bucket, lie right behind it.
struct CommitBlock {
  std::uint64_t committed = 0;    // newest committed round; stored last; grows, but for a pause, which takes back the open round's
  std::uint64_t weight_bits = 0;  // f64
  std::uint64_t presence = 0;     // PresenceKind
};

// Both sides compute it from the layout, neither reads it from the other.
struct SlotShape {
  std::uint64_t words = 0;
  std::vector<std::uint64_t> blocks;  // offset of each bucket's CommitBlock
  std::uint64_t gradients = 0;        // offset, page-aligned
  std::uint64_t total = 0;
};
[[nodiscard]] SlotShape slot_shape(const Layout& layout);
[[nodiscard]] constexpr std::uint64_t presence_words(std::uint64_t parameters) { return (parameters + 63) / 64; }

// Server: sized and sealed against resizing, header written, no other pages allocated.
[[nodiscard]] MemFd create_slot(const SlotShape& shape, std::uint64_t incarnation, std::uint64_t fingerprint, std::uint64_t generation,
                                std::uint64_t rank);
// Server, before it admits the worker: size, seals and allocated pages are as they must be. Throws Error(corrupt | no_space).
void check_slot(const MemFd& file, const SlotShape& shape);

}  // namespace gradshm::core
