// The primary context of each visible device.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "fake_cuda/config.hpp"

namespace gradshm::fake {

class Stream;

// Never deleted: a handle to it stays good for the life of the process.
struct Context {
  int ordinal = 0;  // among the visible devices
  int device = 0;   // its number
  std::mutex mutex;                              // of what follows, and of the order between the streams
  int retained = 0;
  std::shared_ptr<Stream> null_stream;           // while it is retained
  std::vector<std::shared_ptr<Stream>> streams;  // without that
  std::vector<std::shared_ptr<Stream>> retired;  // destroyed, but with work left
  std::atomic<int> sticky{CUDA_SUCCESS};         // the first error that sticks

  void stick(CUresult code);
  void check() const;  // throws what sticks
};

[[nodiscard]] Context& context_of(int ordinal);  // throws Refusal(invalid device)
[[nodiscard]] Context& context_of(CUcontext handle);
void stick_to_current(CUresult code);

}  // namespace gradshm::fake
