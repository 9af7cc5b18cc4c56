// The counters that tests read.
#pragma once

#include <atomic>
#include <cstdint>

#include "fake_cuda/control.hpp"

namespace gradshm::fake {

class Count {
 public:
  // order: relaxed, statistics; a test reads them after it has synchronised the stream.
  void add(std::uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void drop() { value_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct Counts {
  Count host_to_device_bytes, device_to_host_bytes, device_to_device_bytes, set_bytes, launches, host_functions, value_writes, live_allocations,
      live_handles, live_mappings, live_reservations, live_opens, live_registrations, live_streams, scribbled_frees, uses_of_closed, uses_of_dead,
      forbidden_accesses, faults;
};

inline Counts& counts() {
  static Counts* const only = new Counts;
  return *only;
}

}  // namespace gradshm::fake
