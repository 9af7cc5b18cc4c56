// The fake CUDA driver of the tests: libcuda.so.1 for machines without a GPU, over POSIX shared memory, for up to 64 processes at once.
// It shows protocol, lifetimes, order on a stream and arithmetic. It shows nothing about a device's memory order, speed or error codes:
// what passes here is not "tested on a GPU".
//
// Load it with GRADSHM_CUDA_DRIVER=<build>/tests/fake_cuda/libcuda.so.1. It reads its own variables once, at a process's first call;
// a value that it cannot read ends the process with a sentence and exit code 125.
//
// A list has commas between its parts.
//
//   CUDA_VISIBLE_DEVICES        indices and GPU-<uuid> (or its beginning), as for the real driver; none left: cuInit answers 100
//   GRADSHM_FAKE_SESSION        path of the file through which the processes of one test share what is in use on each device and who has
//                               whose memory open. Without it a process counts alone: cuMemGetInfo shows its own memory only, and a free
//                               under an importer is not seen
//   GRADSHM_FAKE_DEVICES        0 to 8, default 1. Device i has the UUID GPU-fa4ec0da-0000-4000-8000-00000000000<i>
//   GRADSHM_FAKE_MEMORY         bytes per device, suffix K, M or G; default 1G. Pages are taken when they are touched
//   GRADSHM_FAKE_SMS            multiprocessors, default 8
//   GRADSHM_FAKE_CAPABILITY     compute capability, default 9.0
//   GRADSHM_FAKE_VERSION        of the driver, default 13000
//   GRADSHM_FAKE_INIT           what cuInit answers: 0 (default), 34 for the stub library, 100 for no device, or any other code
//   GRADSHM_FAKE_MISSING        entries that cuGetProcAddress does not find: cuMemCreate,cuMemMap
//   GRADSHM_FAKE_WITHOUT        of vmm, vmm-fd, ipc, memops, host-register: what the devices cannot do (attribute 0, calls answer 801).
//                               With a leading ! the attribute stays 1, as with real drivers that promise what they cannot do
//   GRADSHM_FAKE_PEERS          all (default), none, or pairs of device numbers: 0-1,2-3
//   GRADSHM_FAKE_JITTER_US      longest random pause before a call, before an operation on a stream, and between two 64 KiB pieces of a copy
//   GRADSHM_FAKE_SEED           of that randomness, default 1
//   GRADSHM_FAKE_SLOW_US        pause before every operation on a stream
//   GRADSHM_FAKE_ERRORS         name:nth:code,...: the nth call of an entry (* for every one) answers code, without effect: cuMemCreate:3:2.
//                               The names kernel, copy, set, write and host mean the nth such operation as a stream comes to it.
//                               Codes from 700 to 719 are sticky where they are for the real driver (700, 702, 709, 710, 714 to 719), and
//                               so is every failure on a stream: each later call with that context answers the same until the process ends
//
// Stricter than the real driver, on purpose: a device pointer to registered host memory never equals the host pointer (a bit is added), and
// registering without DEVICEMAP gives none; host memory given for device memory and the other way about is an invalid value; no call in a
// host function (800); no call in a forked child of a process that has called cuInit (3); an operation on a stream reads its operands when
// it runs, never at the call; the addresses of freed memory are not used again for a while; attributes that nobody here knows are refused.
//
// A kernel that touches memory without the right to gets error 700 on its stream, as on hardware. Registered names: kernels.cpp.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

extern "C" {

// Of this process.
struct gradshm_fake_counters_t {
  std::uint64_t host_to_device_bytes, device_to_host_bytes, device_to_device_bytes, set_bytes;  // of operations that have run
  std::uint64_t launches, host_functions, value_writes;                                         // that have run
  std::uint64_t live_allocations, live_handles, live_mappings, live_reservations, live_opens, live_registrations, live_streams;
  std::uint64_t scribbled_frees;      // cuMemFree while another process of the session had the memory open: its bytes became 0xDB
  std::uint64_t uses_of_closed;       // operations on addresses that nothing is mapped at
  std::uint64_t uses_of_dead;         // operations on legacy memory whose owner has ended
  std::uint64_t forbidden_accesses;   // writes to memory that is mapped read-only, accesses from a device without the right
  std::uint64_t faults;               // kernels that ended with a segmentation fault
};

// Each returns 0, or a CUresult.
int gradshm_fake_counters(gradshm_fake_counters_t* ret_counters);
// While a stream captures, what is queued on it is recorded and not run; what cannot be captured answers 900.
int gradshm_fake_capture(CUstream stream, int on);
// Queues what the last capture of `recorded` holds on `stream`, once.
int gradshm_fake_replay(CUstream recorded, CUstream stream);
}

namespace gradshm::fake {

// For tests: the functions above, of the library that GRADSHM_CUDA_DRIVER names.
template <class Function>
Function* control(const char* name, Function*) {
  const char* const path = std::getenv("GRADSHM_CUDA_DRIVER");
  void* const library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  void* const symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) throw std::runtime_error(std::string("GRADSHM_CUDA_DRIVER is not the fake driver: no ") + name);
  return reinterpret_cast<Function*>(symbol);
}
#define GRADSHM_FAKE_CONTROL(name) ::gradshm::fake::control(#name, decltype(&(name)){})

inline gradshm_fake_counters_t counters() {
  gradshm_fake_counters_t found{};
  GRADSHM_FAKE_CONTROL(gradshm_fake_counters)(&found);
  return found;
}

}  // namespace gradshm::fake
