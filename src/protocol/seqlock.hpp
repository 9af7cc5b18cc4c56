// Records with one writer that others copy while they may change: an odd sequence number means "changing". Writer and readers move
// the payload word by word with relaxed accesses, so that no access is a data race.
// Source: H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "protocol/atomics.hpp"

namespace gradshm::core {

inline void copy_words_in(void* shared, const void* from, std::size_t bytes) noexcept {
  auto* to = static_cast<std::uint64_t*>(shared);
  for (std::size_t i = 0; i < bytes / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(from) + i * 8, 8);
    store_relaxed(to[i], word);
  }
}

inline void copy_words_out(void* to, const void* shared, std::size_t bytes) noexcept {
  const auto* from = static_cast<const std::uint64_t*>(shared);
  for (std::size_t i = 0; i < bytes / 8; ++i) {
    const std::uint64_t word = load_relaxed(from[i]);
    std::memcpy(static_cast<std::byte*>(to) + i * 8, &word, 8);
  }
}

// Writes `bytes` (multiple of 8) of payload under `sequence`.
inline void publish(std::uint64_t& sequence, void* shared, const void* payload, std::size_t bytes) noexcept {
  const std::uint64_t before = load_relaxed(sequence);  // order: relaxed, this process is the only writer
  store_relaxed(sequence, before | 1);                  // order: the fence below pairs with try_read's acquire fence
  fence_release();
  copy_words_in(shared, payload, bytes);
  store_release(sequence, (before | 1) + 1);  // order: release, pairs with try_read's acquire load
}

// One try; false if it changed meanwhile.
[[nodiscard]] inline bool try_read(const std::uint64_t& sequence, void* to, const void* shared, std::size_t bytes) noexcept {
  const std::uint64_t before = load_acquire(sequence);  // order: acquire, pairs with publish's release store
  if (before % 2 != 0) return false;
  copy_words_out(to, shared, bytes);
  fence_acquire();                         // order: pairs with publish's release fence: words of a later publish show its odd number
  return load_relaxed(sequence) == before;
}

// Records that start with their sequence word.
template <class Record>
void publish_record(Record& shared, Record value) noexcept {
  static_assert(offsetof(Record, sequence) == 0 && sizeof(Record) % 8 == 0 && std::is_trivially_copyable_v<Record>);
  publish(shared.sequence, reinterpret_cast<std::byte*>(&shared) + 8, reinterpret_cast<const std::byte*>(&value) + 8, sizeof(Record) - 8);
}

template <class Record>
[[nodiscard]] bool try_read_record(const Record& shared, Record& value) noexcept {
  static_assert(offsetof(Record, sequence) == 0 && sizeof(Record) % 8 == 0 && std::is_trivially_copyable_v<Record>);
  const auto* from = reinterpret_cast<const std::byte*>(&shared);
  value.sequence = load_relaxed(shared.sequence);  // order: relaxed, only to hand it out; try_read has its own
  return try_read(shared.sequence, reinterpret_cast<std::byte*>(&value) + 8, from + 8, sizeof(Record) - 8);
}

}  // namespace gradshm::core
