// From the pointers of a call to memory.
#include <poll.h>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/memory.hpp"

namespace gradshm::fake {
namespace {

std::map<std::uint64_t, Registered>::iterator find_registered(Memory& memory, std::uint64_t address) {
  auto next = memory.registered.upper_bound(address);
  if (next == memory.registered.begin()) return memory.registered.end();
  --next;
  return address < next->first + next->second.bytes ? next : memory.registered.end();
}

bool is_tagged(CUdeviceptr pointer) { return (pointer & kHostTag) != 0; }

[[noreturn]] void illegal(Count& why) {
  why.add();
  throw Refusal{CUDA_ERROR_ILLEGAL_ADDRESS};
}

void* resolve_host(Memory& memory, const Context& context, CUdeviceptr pointer, std::uint64_t bytes, Access access) {
  const std::uint64_t address = pointer & ~kHostTag;
  const auto found = find_registered(memory, address);
  if (found == memory.registered.end() || address + bytes > found->first + found->second.bytes) illegal(counts().uses_of_closed);
  const Registered& range = found->second;
  const bool foreign = range.context != &context && (range.flags & CU_MEMHOSTREGISTER_PORTABLE) == 0;
  if (foreign || (access == Access::write && (range.flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0)) illegal(counts().forbidden_accesses);
  return reinterpret_cast<void*>(address);
}

bool has_ended(const UniqueFd& process) {
  pollfd watched{process.get(), POLLIN, 0};
  return process && poll(&watched, 1, 0) == 1;
}

}  // namespace

Memory& Memory::get() {
  static Memory* const only = new Memory;
  return *only;
}

std::map<std::uint64_t, Range>::iterator Memory::find(std::uint64_t address) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return ranges.end();
  --next;
  return address < next->first + next->second.bytes ? next : ranges.end();
}

// An operand may lie across neighbouring mappings.
void* resolve(Context& context, CUdeviceptr pointer, std::uint64_t bytes, Access access) {
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  if (is_tagged(pointer)) return resolve_host(memory, context, pointer, bytes, access);
  for (std::uint64_t address = pointer; address < pointer + bytes;) {
    const auto found = memory.find(address);
    if (found == memory.ranges.end()) illegal(counts().uses_of_closed);
    if (found->second.access[static_cast<std::size_t>(context.ordinal)] < access) illegal(counts().forbidden_accesses);
    if (has_ended(found->second.owner)) counts().uses_of_dead.add();
    address = found->first + found->second.bytes;
  }
  return reinterpret_cast<void*>(pointer);
}

void check_device_operand(CUdeviceptr pointer, std::uint64_t bytes) {
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  if (is_tagged(pointer)) return require(find_registered(memory, pointer & ~kHostTag) != memory.registered.end());
  require(bytes == 0 || (memory.find(pointer) != memory.ranges.end() && memory.find(pointer + bytes - 1) != memory.ranges.end()));
}

void check_host_operand(const void* pointer, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  require(bytes == 0 || (pointer != nullptr && !is_tagged(address)));
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  require(memory.find(address) == memory.ranges.end());
}

}  // namespace gradshm::fake
