// Kernels as host functions. A new one is an entry in kernels.cpp.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "fake_cuda/memory.hpp"

namespace gradshm::fake {

struct Size3 {
  unsigned x = 1, y = 1, z = 1;
};
using Grid = Size3;
using Block = Size3;

// From a device pointer to memory that host code can touch; needed for registered host memory, and a check of bytes and rights for all other.
// What is not there, or not allowed, ends the kernel with error 700.
class Translate {
 public:
  explicit Translate(Context& context) : context_(&context) {}
  template <class T>
  [[nodiscard]] T* write(CUdeviceptr pointer, std::size_t count) const {
    return static_cast<T*>(resolve(*context_, pointer, count * sizeof(T), Access::write));
  }
  template <class T>
  [[nodiscard]] const T* read(CUdeviceptr pointer, std::size_t count) const {
    return static_cast<const T*>(resolve(*context_, pointer, count * sizeof(T), Access::read));
  }

 private:
  Context* context_;
};

// The n-th parameter, as cuLaunchKernel got it.
template <class T>
[[nodiscard]] const T& parameter(void** parameters, std::size_t index) {
  return *static_cast<const T*>(parameters[index]);
}

struct FakeKernel {
  const char* name;
  std::vector<std::size_t> parameter_bytes;  // cuLaunchKernel copies so much of each
  void (*run)(Grid grid, Block block, void** parameters, Translate translate);
};

[[nodiscard]] const FakeKernel* find_kernel(std::string_view name);  // nullptr: there is none

}  // namespace gradshm::fake
