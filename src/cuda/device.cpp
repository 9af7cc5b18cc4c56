#include "cuda/device.hpp"

#include <map>
#include <mutex>

namespace gradshm::core::cuda {
namespace {

struct Opened {
  std::mutex mutex;
  std::map<Uuid, std::weak_ptr<Device>> devices;
};

// Never destroyed: handles of static storage may outlive everything.
Opened& opened() {
  static auto* const all = new Opened;
  return *all;
}

}  // namespace

std::shared_ptr<Device> Device::open(const DeviceFacts& facts) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<Device>& known = all.devices[facts.uuid];
  if (auto device = known.lock(); device && device->is_ours()) return device;
  const std::shared_ptr<Device> device(new Device(facts));
  known = device;
  return device;
}

Device::Device(const DeviceFacts& facts) : facts_(facts) {
  check("opening", "cuDeviceGet", driver().device_get(&device_, facts.ordinal));
  check("opening", "cuDevicePrimaryCtxRetain", driver().primary_ctx_retain(&context_, device_));
}

Device::~Device() {
  if (is_ours()) static_cast<void>(driver().primary_ctx_release(device_));  // a driver that is going down may refuse, and there is nothing to do then
}

std::string Device::label() const { return "GPU " + std::to_string(facts_.ordinal) + " (" + facts_.name + ")"; }

void Device::check(const char* what, const char* call, CUresult code) const {
  if (code != CUDA_SUCCESS) throw driver_error(label() + ": " + what, call, code);
}

Current::Current(const Device& device) {
  if (!device.is_ours()) throw Error(Status::forked, device.label() + " was opened before the fork: attach anew in the child");
  device.check("making its context current", "cuCtxPushCurrent", driver().ctx_push(device.context_));
}

Current::~Current() {
  CUcontext popped = nullptr;
  static_cast<void>(driver().ctx_pop(&popped));
}

}  // namespace gradshm::core::cuda
