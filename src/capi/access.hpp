// The checks that every function of the C ABI starts with.
#pragma once

#include <string>

#include "base/status.hpp"
#include "capi/handles.hpp"
#include "capi/structs.hpp"

namespace gradshm::core {

inline Handle& checked(const gradshm_handle_t* handle) {
  require(handle, "handle");
  if (handle->handle->forked())
    throw Error(Status::forked, "this handle of '" + handle->handle->instance() + "' belongs to the parent process: attach anew in the child");
  return *handle->handle;
}

inline Handle& checked_worker(const gradshm_handle_t* handle) {
  Handle& inner = checked(handle);
  if (!inner.is_worker()) throw Error(Status::not_member, "an observer of '" + inner.instance() + "' cannot do this: attach as a worker");
  return inner;
}

inline void check_below(std::size_t index, std::size_t count, const char* what) {
  if (index >= count)
    throw Error(Status::invalid, std::string(what) + " index " + std::to_string(index) + " is out of range: the instance has " + std::to_string(count));
}

}  // namespace gradshm::core
