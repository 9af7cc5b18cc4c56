// cuMemAlloc, and what a context that goes takes with it.
#include "fake_cuda/memory.hpp"

#include <cstring>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/session.hpp"
#include "fake_cuda/streams.hpp"

namespace gradshm::fake {
namespace {

constexpr int kScribble = 0xDB;

// Copies between devices of one process work without peer access; kernels on other devices do not reach it.
std::array<Access, kMostDevices> own_device_only(const Context& context) {
  std::array<Access, kMostDevices> access{};
  access[static_cast<std::size_t>(context.ordinal)] = Access::write;
  return access;
}

CUdeviceptr allocate(Context& context, std::uint64_t asked) {
  require(asked > 0);
  require(asked <= config().memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
  const std::uint64_t bytes = (asked + kGranularity - 1) / kGranularity * kGranularity;
  auto physical = Physical::create(context.device, bytes);
  const std::uint64_t address = reserve_addresses(bytes);
  map_at(address, *physical, bytes, Access::write);
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  memory.ranges[address] = {bytes, Origin::allocated, std::move(physical), own_device_only(context), &context, 0, {}};
  counts().live_allocations.add();
  return address;
}

// What an importer still reads is no longer what it was.
void scribble_if_open(std::uint64_t address, const Range& range) {
  if (!Session::get().others_hold(range.physical->id)) return;
  std::memset(reinterpret_cast<void*>(address), kScribble, range.bytes);
  counts().scribbled_frees.add();
}

void remove(Memory& memory, std::map<std::uint64_t, Range>::iterator range) {
  if (range->second.origin == Origin::allocated) scribble_if_open(range->first, range->second);
  (range->second.origin == Origin::allocated ? counts().live_allocations : counts().live_opens).drop();
  unmap_at(range->first, range->second.bytes);
  give_back_addresses(range->first, range->second.bytes);
  memory.ranges.erase(range);
}

}  // namespace

void forget_memory_of(Context& context) {
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  for (auto range = memory.ranges.begin(); range != memory.ranges.end();) {
    const auto next = std::next(range);
    if (range->second.context == &context) remove(memory, range);
    range = next;
  }
  const std::size_t unregistered = std::erase_if(memory.registered, [&](const auto& entry) { return entry.second.context == &context; });
  for (std::size_t index = 0; index < unregistered; ++index) counts().live_registrations.drop();
}

}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuMemGetInfo(std::size_t* ret_free, std::size_t* ret_total) {
  return in_context("cuMemGetInfo", [&](Context& context) {
    const std::uint64_t used = Session::get().used_bytes(context.device), total = config().memory_bytes;
    if (ret_free != nullptr) *ret_free = total > used ? total - used : 0;
    if (ret_total != nullptr) *ret_total = total;
  });
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* ret_pointer, std::size_t bytes) {
  return in_context("cuMemAlloc", [&](Context& context) {
    require(ret_pointer != nullptr);
    *ret_pointer = allocate(context, bytes);
  });
}

CUresult CUDAAPI cuMemFree(CUdeviceptr pointer) {
  return in_context("cuMemFree", [&](Context& context) {
    if (pointer == 0) return;
    Memory& memory = Memory::get();
    {
      const std::lock_guard guard(memory.mutex);
      const auto found = memory.ranges.find(pointer);
      require(found != memory.ranges.end() && found->second.origin == Origin::allocated);
    }
    synchronize(context);
    context.check();
    const std::lock_guard guard(memory.mutex);
    const auto found = memory.ranges.find(pointer);
    require(found != memory.ranges.end());  // two threads freed it
    remove(memory, found);
  });
}
