// What the library shows to the outside: cuGetProcAddress_v2, and the control functions of the tests.
#include <cuda.h>

#include <cstring>

#include "cuda/driver.hpp"
#include "fake_cuda/calls.hpp"
#include "fake_cuda/config.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/control.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/streams.hpp"

#define GRADSHM_FAKE_SHOWN __attribute__((visibility("default")))

namespace gradshm::fake {
namespace {

struct Entry {
  const char* name;
  void* function;
};

const Entry kEntries[] = {
#define GRADSHM_FAKE_ENTRY(member, name) {#name, reinterpret_cast<void*>(&::name)},
    GRADSHM_CUDA_ENTRIES(GRADSHM_FAKE_ENTRY)
#undef GRADSHM_FAKE_ENTRY
};

void* find_entry(const char* name) {
  for (const Entry& entry : kEntries)
    if (std::strcmp(entry.name, name) == 0 && config().missing.count(name) == 0) return entry.function;
  return nullptr;
}

}  // namespace
}  // namespace gradshm::fake

using namespace gradshm::fake;

extern "C" {

// Every entry is there at every version, so that a caller meets the answer of cuDriverGetVersion.
GRADSHM_FAKE_SHOWN CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** ret_function, int, cuuint64_t flags, CUdriverProcAddressQueryResult* ret_found) {
  if (name == nullptr || ret_function == nullptr || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  *ret_function = find_entry(name);
  if (ret_found != nullptr) *ret_found = *ret_function == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  return *ret_function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

GRADSHM_FAKE_SHOWN int gradshm_fake_counters(gradshm_fake_counters_t* ret_counters) {
  const Counts& now = counts();
  *ret_counters = {};
#define GRADSHM_FAKE_COPY(name) ret_counters->name = now.name.get();
  GRADSHM_FAKE_COPY(host_to_device_bytes) GRADSHM_FAKE_COPY(device_to_host_bytes) GRADSHM_FAKE_COPY(device_to_device_bytes) GRADSHM_FAKE_COPY(set_bytes)
  GRADSHM_FAKE_COPY(launches) GRADSHM_FAKE_COPY(host_functions) GRADSHM_FAKE_COPY(value_writes)
  GRADSHM_FAKE_COPY(live_allocations) GRADSHM_FAKE_COPY(live_handles) GRADSHM_FAKE_COPY(live_mappings) GRADSHM_FAKE_COPY(live_reservations)
  GRADSHM_FAKE_COPY(live_opens) GRADSHM_FAKE_COPY(live_registrations) GRADSHM_FAKE_COPY(live_streams)
  GRADSHM_FAKE_COPY(scribbled_frees) GRADSHM_FAKE_COPY(uses_of_closed) GRADSHM_FAKE_COPY(uses_of_dead) GRADSHM_FAKE_COPY(forbidden_accesses)
  GRADSHM_FAKE_COPY(faults)
#undef GRADSHM_FAKE_COPY
  return CUDA_SUCCESS;
}

GRADSHM_FAKE_SHOWN int gradshm_fake_capture(CUstream stream, int on) {
  return in_context("gradshm_fake_capture", [&](Context& context) { stream_of(stream, context)->capture(on != 0); });
}

GRADSHM_FAKE_SHOWN int gradshm_fake_replay(CUstream recorded, CUstream stream) {
  return in_context("gradshm_fake_replay", [&](Context& context) {
    const auto target = stream_of(stream, context);
    for (Operation& operation : stream_of(recorded, context)->recorded()) {
      operation.after.clear();
      enqueue(target, std::move(operation));
    }
  });
}

}  // extern "C"
