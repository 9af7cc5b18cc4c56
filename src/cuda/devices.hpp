// The GPUs that this process sees, and what each can do. Usable in builds without CUDA: there the list says why it is empty.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/uuid.hpp"

namespace gradshm::core::cuda {

struct DeviceFacts {
  Uuid uuid;
  int ordinal = 0;  // of this process only
  std::string name;
  std::uint64_t total_bytes = 0;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  bool vmm = false;                // virtual memory management, and its export as a POSIX descriptor
  bool stream_memory_ops = false;  // cuStreamWriteValue64
  bool host_register = false;
};

struct Survey {
  std::string missing;  // why there is nothing to list, in one sentence with what to do; empty = there are devices
  int driver_version = 0;  // 1000 * major + 10 * minor; 0 = no driver
  std::vector<DeviceFacts> devices;
  std::vector<std::vector<bool>> peers;  // [from][to]: the driver says that `from` may access `to`
};

// Starts the driver, but makes no context on any device. Thread-safe; never throws for what a driver lacks.
[[nodiscard]] Survey survey();

// By UUID ("GPU-..." in full, or a beginning of it that fits one device only) or by ordinal ("0"). Throws Error(invalid | not_found) that lists what there is.
[[nodiscard]] const DeviceFacts& choose_device(std::span<const DeviceFacts> devices, std::string_view text);

}  // namespace gradshm::core::cuda
