// One GPU in this process: its primary context, which all handles and the framework in this process share.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "cuda/devices.hpp"
#include "cuda/driver.hpp"

namespace gradshm::core::cuda {

class Device {
 public:
  // The same object for every caller while anybody has it. Thread-safe. Throws Error(unsupported | not_found | system).
  [[nodiscard]] static std::shared_ptr<Device> open(const DeviceFacts& facts);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] CUdevice handle() const noexcept { return device_; }
  // False in a forked child: no CUDA call may be made there, not even to clean up.
  [[nodiscard]] bool is_ours() const noexcept { return owner_ == getpid(); }
  // "GPU 0 (NVIDIA H200)"
  [[nodiscard]] std::string label() const;

  // Throws unless code is CUDA_SUCCESS; `what` is what was being done.
  void check(const char* what, const char* call, CUresult code) const;

 private:
  friend class Current;
  explicit Device(const DeviceFacts& facts);

  DeviceFacts facts_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  pid_t owner_ = getpid();
};

// The device's context is this thread's current one until the end of the scope; what was current before is so again then.
class Current {
 public:
  explicit Current(const Device& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

}  // namespace gradshm::core::cuda
