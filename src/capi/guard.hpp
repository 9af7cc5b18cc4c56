// Between the C ABI and the rest: one place that turns exceptions into codes and keeps this thread's sentence.
#pragma once

#include <new>
#include <string>

#include "base/status.hpp"

namespace gradshm::core {

// The sentence of this thread's last failed call.
[[nodiscard]] const std::string& last_error() noexcept;
int fail(Status status, const std::string& sentence) noexcept;

// No exception leaves the library.
template <class Function>
int guard(Function&& body) noexcept {
  try {
    body();
    return GRADSHM_OK;
  } catch (const Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(Status::no_memory, "out of memory in this process");
  } catch (const std::exception& error) {
    return fail(Status::internal, std::string("internal fault, please report it: ") + error.what());
  } catch (...) {
    return fail(Status::internal, "internal fault, please report it");
  }
}

}  // namespace gradshm::core
