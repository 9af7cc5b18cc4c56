// Host memory that devices reach.
#include <atomic>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/guard.hpp"
#include "fake_cuda/memory.hpp"
#include "fake_cuda/streams.hpp"

namespace gradshm::fake {
namespace {

constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;

bool overlaps(const Memory& memory, std::uint64_t address, std::uint64_t bytes) {
  for (const auto& [begin, range] : memory.registered)
    if (begin < address + bytes && address < begin + range.bytes) return true;
  return false;
}

// The value comes behind everything that the stream has done before it.
void write_value(Context& context, CUdeviceptr address, std::uint64_t value) {
  auto* const word = static_cast<std::uint64_t*>(resolve(context, address, sizeof value, Access::write));
  run_guarded([&] {
    // order: release, pairs with the reader's acquire, as the fence of cuStreamWriteValue64 does.
    std::atomic_ref(*word).store(value, std::memory_order_release);
  });
  counts().value_writes.add();
}

}  // namespace
}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuMemHostRegister(void* pointer, std::size_t bytes, unsigned int flags) {
  return in_context("cuMemHostRegister", [&](Context& context) {
    require(config().works("host-register"), CUDA_ERROR_NOT_SUPPORTED);
    require(bytes > 0 && (flags & ~kRegisterFlags) == 0);
    check_host_operand(pointer, bytes);
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    require(!overlaps(memory, address, bytes), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    memory.registered[address] = {bytes, flags, &context};
    counts().live_registrations.add();
  });
}

CUresult CUDAAPI cuMemHostUnregister(void* pointer) {
  return in_context("cuMemHostUnregister", [&](Context&) {
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    require(memory.registered.erase(reinterpret_cast<std::uint64_t>(pointer)) == 1, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    counts().live_registrations.drop();
  });
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* ret_pointer, void* pointer, unsigned int flags) {
  return in_context("cuMemHostGetDevicePointer", [&](Context& context) {
    require(ret_pointer != nullptr && flags == 0);
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    auto next = memory.registered.upper_bound(address);
    require(next != memory.registered.begin());
    const auto& [begin, range] = *--next;
    require(address < begin + range.bytes && (range.flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0);
    require((range.flags & CU_MEMHOSTREGISTER_PORTABLE) != 0 || range.context == &context);
    *ret_pointer = address | kHostTag;
  });
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return in_context("cuStreamWriteValue64", [&](Context& context) {
    require(config().works("memops"), CUDA_ERROR_NOT_SUPPORTED);
    require(flags == CU_STREAM_WRITE_VALUE_DEFAULT && address % sizeof value == 0 && address != 0);
    check_device_operand(address, sizeof value);
    const auto stream = stream_of(handle, context);
    require(!stream->capturing(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    enqueue(stream, {"write", [&context, address, value] { write_value(context, address, value); }, {}});
  });
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  return in_context("cuLaunchHostFunc", [&](Context& context) {
    require(function != nullptr);
    enqueue(stream_of(handle, context), {"host",
                                         [function, argument] {
                                           const InHostFunction inside;
                                           function(argument);
                                           counts().host_functions.add();
                                         },
                                         {}});
  });
}
