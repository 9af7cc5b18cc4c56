// The CUDA driver as a table of its functions, filled at run time: one build serves machines with and without a GPU.
//
// The reference for every entry is cuda.h. Nothing here is called in static destructors, at exit or in a forked child: a handle that is
// used there asks driver() no more.
#pragma once

#include <cuda.h>

#include <string>

#include "base/status.hpp"

namespace gradshm::core::cuda {

// member, name in cuda.h. cuda.h turns some names into those of newer versions (cuMemAlloc is cuMemAlloc_v2), so that the type is
// that of the version that cuGetProcAddress gives for kApiVersion.
#define GRADSHM_CUDA_ENTRIES(X)                                             \
  X(init, cuInit)                                                           \
  X(driver_version, cuDriverGetVersion)                                     \
  X(error_name, cuGetErrorName)                                             \
  X(error_string, cuGetErrorString)                                         \
  X(device_count, cuDeviceGetCount)                                         \
  X(device_get, cuDeviceGet)                                                \
  X(device_name, cuDeviceGetName)                                           \
  X(device_uuid, cuDeviceGetUuid)                                           \
  X(device_attribute, cuDeviceGetAttribute)                                 \
  X(device_total_mem, cuDeviceTotalMem)                                     \
  X(device_can_access_peer, cuDeviceCanAccessPeer)                          \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain)                           \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease)                         \
  X(ctx_push, cuCtxPushCurrent)                                             \
  X(ctx_pop, cuCtxPopCurrent)                                               \
  X(ctx_synchronize, cuCtxSynchronize)                                      \
  X(mem_info, cuMemGetInfo)                                                 \
  X(mem_alloc, cuMemAlloc)                                                  \
  X(mem_free, cuMemFree)                                                    \
  X(copy_to_device, cuMemcpyHtoD)                                           \
  X(copy_to_host, cuMemcpyDtoH)                                             \
  X(copy_to_device_async, cuMemcpyHtoDAsync)                                \
  X(copy_to_host_async, cuMemcpyDtoHAsync)                                  \
  X(copy_async, cuMemcpyDtoDAsync)                                          \
  X(set_bytes_async, cuMemsetD8Async)                                       \
  X(host_register, cuMemHostRegister)                                       \
  X(host_unregister, cuMemHostUnregister)                                   \
  X(host_device_pointer, cuMemHostGetDevicePointer)                         \
  X(mem_granularity, cuMemGetAllocationGranularity)                         \
  X(mem_create, cuMemCreate)                                                \
  X(mem_release, cuMemRelease)                                              \
  X(address_reserve, cuMemAddressReserve)                                   \
  X(address_free, cuMemAddressFree)                                         \
  X(mem_map, cuMemMap)                                                      \
  X(mem_unmap, cuMemUnmap)                                                  \
  X(mem_set_access, cuMemSetAccess)                                         \
  X(mem_export, cuMemExportToShareableHandle)                               \
  X(mem_import, cuMemImportFromShareableHandle)                             \
  X(ipc_get, cuIpcGetMemHandle)                                             \
  X(ipc_open, cuIpcOpenMemHandle)                                           \
  X(ipc_close, cuIpcCloseMemHandle)                                         \
  X(stream_create, cuStreamCreate)                                          \
  X(stream_destroy, cuStreamDestroy)                                        \
  X(stream_synchronize, cuStreamSynchronize)                                \
  X(stream_query, cuStreamQuery)                                            \
  X(stream_is_capturing, cuStreamIsCapturing)                               \
  X(stream_write, cuStreamWriteValue64)                                     \
  X(launch_host, cuLaunchHostFunc)                                          \
  X(module_load, cuModuleLoadData)                                          \
  X(module_unload, cuModuleUnload)                                          \
  X(module_function, cuModuleGetFunction)                                   \
  X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor)                 \
  X(launch, cuLaunchKernel)

inline constexpr int kApiVersion = 12000;  // CUDA 12.0: what every entry is asked for

struct Driver {
#define GRADSHM_CUDA_MEMBER(member, name) decltype(&::name) member = nullptr;
  GRADSHM_CUDA_ENTRIES(GRADSHM_CUDA_MEMBER)
#undef GRADSHM_CUDA_MEMBER
  int version = 0;  // of the driver, 1000 * major + 10 * minor
};

// Loaded and initialised by the first call, for the life of the process; thread-safe. Throws Error(unsupported) that says which of these
// it is, and what to do: no libcuda.so.1, a stub library, a driver older than CUDA 12.0, an entry that is missing, cuInit's refusal.
[[nodiscard]] const Driver& driver();

// "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)".
[[nodiscard]] std::string describe(const char* call, CUresult code);
// OUT_OF_MEMORY is no_space, all else system.
[[nodiscard]] Error driver_error(const std::string& what, const char* call, CUresult code);

}  // namespace gradshm::core::cuda
