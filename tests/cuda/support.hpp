// Processes with the fake driver. The test's own process never loads it: a forked child of a process that has cannot use it.
#pragma once

#include <cases/support.hpp>

#include <map>
#include <string>

#include "base/unique_fd.hpp"
#include "cuda/driver.hpp"
#include "fake_cuda/control.hpp"

namespace gradshm::test {

using core::UniqueFd;
using core::cuda::Driver;

using Settings = std::map<std::string, std::string>;  // of the environment; control.hpp has the list

[[nodiscard]] std::string fake_path();
// `body` in a child with the fake driver and these settings. No doctest assertion inside.
[[nodiscard]] Child start_on_fake(const Settings& settings, const std::function<int()>& body);
// Waits for it: 0 if every expectation was met.
[[nodiscard]] int run_on_fake(const Settings& settings, const std::function<void(Verdict&)>& body);

// Throws with the name of the code and the line, where a test goes no further without it.
void must(CUresult code, int line = __builtin_LINE());

// The primary context of a device, current on this thread for as long as it lives.
class Gpu {
 public:
  explicit Gpu(int ordinal = 0);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  [[nodiscard]] CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const;
  [[nodiscard]] CUfunction kernel(const char* name) const;
  [[nodiscard]] CUdeviceptr allocate(std::size_t bytes = kChunk) const;
  void fill(CUdeviceptr pointer, unsigned char value, std::size_t bytes = kChunk) const;  // and waits
  [[nodiscard]] bool holds(CUdeviceptr pointer, unsigned char value, std::size_t bytes = kChunk) const;
  [[nodiscard]] std::size_t free_bytes() const;

  static constexpr std::size_t kChunk = 2u << 20;
  const Driver& cu;
  CUdevice device = 0;
  CUcontext context = nullptr;
};

// cuMemCreate and an address for it, or the same of what came from another process.
struct Mapped2M {
  explicit Mapped2M(const Gpu& gpu, CUmemAccess_flags rights = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  Mapped2M(const Gpu& gpu, const UniqueFd& imported, CUmemAccess_flags rights);
  [[nodiscard]] UniqueFd exported() const;
  void unmap();  // and all the rest

  const Gpu& gpu;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;

 private:
  void map(CUmemAccess_flags rights);
};
[[nodiscard]] CUmemAllocationProp on_device(int ordinal);
[[nodiscard]] CUmemAccessDesc rights_of(int ordinal, CUmemAccess_flags rights);

// Two ends of a socket for descriptors, made before the children are.
class Channel {
 public:
  Channel();
  void send(const UniqueFd& descriptor) const;
  [[nodiscard]] UniqueFd receive() const;

 private:
  UniqueFd ends_[2];
};

// The file through which the processes of a test share the devices.
class FakeSession {
 public:
  [[nodiscard]] Settings with(Settings settings = {}) const;

 private:
  RunDirectory directory_;
};

}  // namespace gradshm::test
