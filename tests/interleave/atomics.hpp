// Stands in for src/protocol/atomics.hpp, and for the system calls of src/protocol/futex.hpp (-DGRADSHM_ATOMICS_HEADER): every access goes to the
// model of memory.hpp. The call's place in the source is its identity, so that one order at a time can be weakened.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "interleave/memory.hpp"

namespace gradshm::core {

template <class Word>
concept SharedWord = (sizeof(Word) == 4 || sizeof(Word) == 8) && std::is_integral_v<Word>;

using Place = gradshm::test::Place;
using MemoryOrder = gradshm::test::Order;

template <SharedWord Word>
[[nodiscard]] Word load_relaxed(const Word& word, Place place = Place::current()) noexcept {
  return static_cast<Word>(test::memory().load(&word, sizeof word, {place, "load", MemoryOrder::relaxed}));
}
template <SharedWord Word>
[[nodiscard]] Word load_acquire(const Word& word, Place place = Place::current()) noexcept {
  return static_cast<Word>(test::memory().load(&word, sizeof word, {place, "load", MemoryOrder::acquire}));
}
template <SharedWord Word>
[[nodiscard]] Word load_seq_cst(const Word& word, Place place = Place::current()) noexcept {
  return static_cast<Word>(test::memory().load(&word, sizeof word, {place, "load", MemoryOrder::seq_cst}));
}
template <SharedWord Word>
void store_relaxed(Word& word, std::type_identity_t<Word> value, Place place = Place::current()) noexcept {
  test::memory().store(&word, sizeof word, static_cast<std::uint64_t>(value), {place, "store", MemoryOrder::relaxed});
}
template <SharedWord Word>
void store_release(Word& word, std::type_identity_t<Word> value, Place place = Place::current()) noexcept {
  test::memory().store(&word, sizeof word, static_cast<std::uint64_t>(value), {place, "store", MemoryOrder::release});
}
template <SharedWord Word>
void store_seq_cst(Word& word, std::type_identity_t<Word> value, Place place = Place::current()) noexcept {
  test::memory().store(&word, sizeof word, static_cast<std::uint64_t>(value), {place, "store", MemoryOrder::seq_cst});
}
template <SharedWord Word>
Word add_relaxed(Word& word, std::type_identity_t<Word> value, Place place = Place::current()) noexcept {
  return static_cast<Word>(test::memory().add(&word, sizeof word, static_cast<std::uint64_t>(value), {place, "add", MemoryOrder::relaxed}));
}
template <SharedWord Word>
Word add_seq_cst(Word& word, std::type_identity_t<Word> value, Place place = Place::current()) noexcept {
  return static_cast<Word>(test::memory().add(&word, sizeof word, static_cast<std::uint64_t>(value), {place, "add", MemoryOrder::seq_cst}));
}

inline void fence_acquire(Place place = Place::current()) noexcept { test::memory().fence({place, "fence", MemoryOrder::acquire}); }
inline void fence_release(Place place = Place::current()) noexcept { test::memory().fence({place, "fence", MemoryOrder::release}); }
inline void fence_stores(Place place = Place::current()) noexcept { test::memory().fence({place, "fence of stores", MemoryOrder::release}); }
inline void cpu_relax() noexcept {}

// No time passes: a sleep ends by a wake-up or never, so that one that gets lost is seen.
inline void futex_wait(const std::uint32_t& word, std::uint32_t seen, std::int64_t) noexcept { test::memory().futex_wait(word, seen); }
inline void futex_wake_all(const std::uint32_t& word) noexcept { test::memory().futex_wake(word); }
inline void ring_doorbell(int) noexcept { test::memory().ring(); }

}  // namespace gradshm::core
