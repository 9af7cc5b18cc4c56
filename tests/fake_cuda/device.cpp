// What there is, and what it can do.
#include <cstdio>
#include <cstring>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/config.hpp"
#include "fake_cuda/context.hpp"

using namespace gradshm::fake;

namespace {

int yes_if_promised(const char* feature) { return config().promises(feature) ? 1 : 0; }

int attribute_value(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return config().capability_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return config().capability_minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return config().multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: return 0;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: return 0;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: return 0;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: return 0;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: return yes_if_promised("host-register");
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: return yes_if_promised("host-register");
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: return yes_if_promised("memops");
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return yes_if_promised("vmm");
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return config().promises("vmm") ? yes_if_promised("vmm-fd") : 0;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: return yes_if_promised("ipc");
    default: throw Refusal{CUDA_ERROR_INVALID_VALUE};
  }
}

struct Known {
  CUresult code;
  const char *name, *text;
};

#define GRADSHM_FAKE_CODE(code, text) Known{code, #code, text}
constexpr Known kKnown[] = {
    GRADSHM_FAKE_CODE(CUDA_SUCCESS, "no error"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_STUB_LIBRARY, "stub library"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_INVALID_IMAGE, "invalid kernel image"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_MAP_FAILED, "mapping failed"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image for this device"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "no peer access between these devices"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NOT_READY, "device not ready"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal memory access"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is registered already"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_LAUNCH_FAILED, "launch failure"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted while the stream captures"),
    GRADSHM_FAKE_CODE(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef GRADSHM_FAKE_CODE

CUresult find_words(CUresult code, const char* Known::*word, const char** ret_word) {
  for (const Known& known : kKnown)
    if (known.code == code) return *ret_word = known.*word, CUDA_SUCCESS;
  *ret_word = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult CUDAAPI cuInit(unsigned int flags) {
  return anywhere("cuInit", [&] {
    require(flags == 0);
    require(config().init_code == 0, static_cast<CUresult>(config().init_code));
    require(!config().visible.empty(), CUDA_ERROR_NO_DEVICE);
    mark_initialised();
  }, Needs::nothing);
}

CUresult CUDAAPI cuDriverGetVersion(int* ret_version) {
  return anywhere("cuDriverGetVersion", [&] {
    require(ret_version != nullptr);
    *ret_version = config().version;
  }, Needs::nothing);
}

CUresult CUDAAPI cuGetErrorName(CUresult code, const char** ret_name) { return find_words(code, &Known::name, ret_name); }
CUresult CUDAAPI cuGetErrorString(CUresult code, const char** ret_text) { return find_words(code, &Known::text, ret_text); }

CUresult CUDAAPI cuDeviceGetCount(int* ret_count) {
  return anywhere("cuDeviceGetCount", [&] {
    require(ret_count != nullptr);
    *ret_count = static_cast<int>(config().visible.size());
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* ret_device, int ordinal) {
  return anywhere("cuDeviceGet", [&] {
    require(ret_device != nullptr);
    *ret_device = context_of(ordinal).ordinal;
  });
}

CUresult CUDAAPI cuDeviceGetName(char* ret_name, int bytes, CUdevice device) {
  return anywhere("cuDeviceGetName", [&] {
    require(ret_name != nullptr && bytes > 0);
    std::snprintf(ret_name, static_cast<std::size_t>(bytes), "gradshm fake GPU %d", context_of(device).device);
  });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* ret_uuid, CUdevice device) {
  return anywhere("cuDeviceGetUuid", [&] {
    require(ret_uuid != nullptr);
    const auto bytes = uuid_of(context_of(device).device);
    std::memcpy(ret_uuid->bytes, bytes.data(), bytes.size());
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* ret_value, CUdevice_attribute attribute, CUdevice device) {
  return anywhere("cuDeviceGetAttribute", [&] {
    require(ret_value != nullptr);
    static_cast<void>(context_of(device));
    *ret_value = attribute_value(attribute);
  });
}

CUresult CUDAAPI cuDeviceTotalMem(std::size_t* ret_bytes, CUdevice device) {
  return anywhere("cuDeviceTotalMem", [&] {
    require(ret_bytes != nullptr);
    static_cast<void>(context_of(device));
    *ret_bytes = config().memory_bytes;
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* ret_yes, CUdevice device, CUdevice peer) {
  return anywhere("cuDeviceCanAccessPeer", [&] {
    require(ret_yes != nullptr);
    const int one = context_of(device).device, other = context_of(peer).device;
    *ret_yes = one != other && config().peers[static_cast<std::size_t>(one)][static_cast<std::size_t>(other)] ? 1 : 0;
  });
}
