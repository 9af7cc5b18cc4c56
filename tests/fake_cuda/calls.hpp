// How an entry of the driver begins and ends. Bodies throw Refusal; nothing else leaves them.
#pragma once

#include <cuda.h>

namespace gradshm::fake {

struct Context;

struct Refusal {
  CUresult code;
};

inline void require(bool met, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
  if (!met) throw Refusal{otherwise};
}

enum class Needs { nothing, init };

// faults.cpp. The pause before the call, and what refuses it whatever it is: no cuInit, a forked child, a host function, an injected error.
void enter(const char* name, Needs needs);
// An injected error for the next operation of this kind on a stream.
void meet_operation(const char* kind);
void pause_at_random();
void mark_initialised();
// Marks this thread as one that runs a host function.
struct InHostFunction {
  InHostFunction();
  ~InHostFunction();
};
[[nodiscard]] bool is_sticky(CUresult code);

// context.cpp. The thread's current context, with its sticky error checked.
[[nodiscard]] Context& current_context();
// For calls that need none: only what sticks to the current one, if any.
void check_current_if_any();

template <class Body>
CUresult anywhere(const char* name, Body&& body, Needs needs = Needs::init) noexcept {
  try {
    enter(name, needs);
    body();
    return CUDA_SUCCESS;
  } catch (const Refusal& refusal) {
    return refusal.code;
  }
}

template <class Body>
CUresult in_context(const char* name, Body&& body) noexcept {
  return anywhere(name, [&] { body(current_context()); });
}

// Virtual memory: needs no context.
template <class Body>
CUresult in_process(const char* name, Body&& body) noexcept {
  return anywhere(name, [&] {
    check_current_if_any();
    body();
  });
}

}  // namespace gradshm::fake
