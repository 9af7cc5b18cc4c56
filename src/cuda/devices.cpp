#include "cuda/devices.hpp"

#include <algorithm>
#include <cstring>

#include "base/text.hpp"
#include "cuda/driver.hpp"

namespace gradshm::core::cuda {
namespace {

void check(const char* call, CUresult code) {
  if (code != CUDA_SUCCESS) throw driver_error("looking for GPUs", call, code);
}

bool has(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver().device_attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

int number(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  check("cuDeviceGetAttribute", driver().device_attribute(&value, attribute, device));
  return value;
}

DeviceFacts facts_of(int ordinal, CUdevice device) {
  const Driver& cu = driver();
  DeviceFacts facts;
  facts.ordinal = ordinal;
  char name[128] = {};
  check("cuDeviceGetName", cu.device_name(name, sizeof name - 1, device));
  facts.name = escape(name);
  CUuuid uuid{};
  check("cuDeviceGetUuid", cu.device_uuid(&uuid, device));
  std::memcpy(facts.uuid.bytes.data(), uuid.bytes, sizeof uuid.bytes);
  std::size_t bytes = 0;
  check("cuDeviceTotalMem", cu.device_total_mem(&bytes, device));
  facts.total_bytes = bytes;
  facts.major = number(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  facts.minor = number(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.multiprocessors = number(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.vmm = has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) && has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  facts.stream_memory_ops = has(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  facts.host_register = has(device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  return facts;
}

std::vector<std::vector<bool>> peer_matrix(const std::vector<CUdevice>& devices) {
  std::vector<std::vector<bool>> matrix(devices.size(), std::vector<bool>(devices.size()));
  for (std::size_t from = 0; from < devices.size(); ++from)
    for (std::size_t to = 0; to < devices.size(); ++to) {
      int can = 0;
      matrix[from][to] = from != to && driver().device_can_access_peer(&can, devices[from], devices[to]) == CUDA_SUCCESS && can != 0;
    }
  return matrix;
}

void fill(Survey& out) {
  const Driver& cu = driver();
  out.driver_version = cu.version;
  int count = 0;
  check("cuDeviceGetCount", cu.device_count(&count));
  std::vector<CUdevice> devices(static_cast<std::size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    check("cuDeviceGet", cu.device_get(&devices[static_cast<std::size_t>(i)], i));
    out.devices.push_back(facts_of(i, devices[static_cast<std::size_t>(i)]));
  }
  out.peers = peer_matrix(devices);
  if (count == 0) out.missing = "the CUDA driver shows no GPU: is CUDA_VISIBLE_DEVICES empty?";
}

}  // namespace

Survey survey() {
  Survey out;
  try {
    fill(out);
  } catch (const Error& error) {
    out = {};
    out.missing = error.what();
  }
  return out;
}

}  // namespace gradshm::core::cuda
