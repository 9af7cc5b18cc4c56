// The only door to memory that two processes use at once. A test may put another implementation in its place (GRADSHM_ATOMICS_HEADER:
// the interleaver of tests/interleave). The order is part of each name; call sites say which access is the partner.
#pragma once

#ifdef GRADSHM_ATOMICS_HEADER
#include GRADSHM_ATOMICS_HEADER
#else

#include <atomic>
#include <cstdint>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradshm::core {

template <class Word>
concept SharedWord = (sizeof(Word) == 4 || sizeof(Word) == 8) && std::is_integral_v<Word>;

namespace detail {
// Loads through a read-only mapping are fine: a lock-free load never stores.
template <SharedWord Word>
std::atomic_ref<Word> ref(const Word& word) noexcept {
  static_assert(std::atomic_ref<Word>::is_always_lock_free, "a lock would live in one process only");
  return std::atomic_ref<Word>(const_cast<Word&>(word));
}
}  // namespace detail

template <SharedWord Word>
[[nodiscard]] Word load_relaxed(const Word& word) noexcept {
  return detail::ref(word).load(std::memory_order_relaxed);
}
template <SharedWord Word>
[[nodiscard]] Word load_acquire(const Word& word) noexcept {
  return detail::ref(word).load(std::memory_order_acquire);
}
template <SharedWord Word>
[[nodiscard]] Word load_seq_cst(const Word& word) noexcept {
  return detail::ref(word).load(std::memory_order_seq_cst);
}
template <SharedWord Word>
void store_relaxed(Word& word, std::type_identity_t<Word> value) noexcept {
  detail::ref(word).store(value, std::memory_order_relaxed);
}
template <SharedWord Word>
void store_release(Word& word, std::type_identity_t<Word> value) noexcept {
  detail::ref(word).store(value, std::memory_order_release);
}
template <SharedWord Word>
void store_seq_cst(Word& word, std::type_identity_t<Word> value) noexcept {
  detail::ref(word).store(value, std::memory_order_seq_cst);
}
// Only for words whose writer is one process: nobody else modifies them.
template <SharedWord Word>
Word add_relaxed(Word& word, std::type_identity_t<Word> value) noexcept {
  return detail::ref(word).fetch_add(value, std::memory_order_relaxed);
}
template <SharedWord Word>
Word add_seq_cst(Word& word, std::type_identity_t<Word> value) noexcept {
  return detail::ref(word).fetch_add(value, std::memory_order_seq_cst);
}

inline void fence_acquire() noexcept { std::atomic_thread_fence(std::memory_order_acquire); }
inline void fence_release() noexcept { std::atomic_thread_fence(std::memory_order_release); }

// A release fence that also orders non-temporal stores, which no C++ fence does on x86.
inline void fence_stores() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
  fence_release();
}

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace gradshm::core

#endif
