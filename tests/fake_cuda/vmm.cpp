// Virtual memory management: cuMemCreate and what follows it.
#include <fcntl.h>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/memory.hpp"
#include "fake_cuda/streams.hpp"

namespace gradshm::fake {
namespace {

struct Handle {
  std::shared_ptr<Physical> physical;
  bool exportable = false;
};

struct Handles {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Handle> open;
  CUmemGenericAllocationHandle last = 0x6700;

  CUmemGenericAllocationHandle add(Handle handle) {
    const std::lock_guard guard(mutex);
    open[last += 16] = std::move(handle);
    counts().live_handles.add();
    return last;
  }
  Handle get(CUmemGenericAllocationHandle number) {
    const std::lock_guard guard(mutex);
    const auto found = open.find(number);
    require(found != open.end());
    return found->second;
  }
};

Handles& handles() {
  static Handles* const only = new Handles;
  return *only;
}

void require_vmm() { require(config().works("vmm"), CUDA_ERROR_NOT_SUPPORTED); }
bool is_aligned(std::uint64_t value) { return value % kGranularity == 0; }

void check_properties(const CUmemAllocationProp* asked) {
  require(asked != nullptr && asked->type == CU_MEM_ALLOCATION_TYPE_PINNED && asked->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  require(asked->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE || asked->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          CUDA_ERROR_NOT_SUPPORTED);
  const bool exportable = asked->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  require(!exportable || config().works("vmm-fd"), CUDA_ERROR_NOT_SUPPORTED);
}

bool is_reserved(Memory& memory, std::uint64_t address, std::uint64_t bytes) {
  auto next = memory.reserved.upper_bound(address);
  if (next == memory.reserved.begin()) return false;
  --next;
  return address + bytes <= next->first + next->second;
}

bool is_free(Memory& memory, std::uint64_t address, std::uint64_t bytes) {
  const auto next = memory.ranges.lower_bound(address);
  return memory.find(address) == memory.ranges.end() && (next == memory.ranges.end() || next->first >= address + bytes);
}

// The mappings that make up exactly this range.
template <class Each>
void for_each_mapping(Memory& memory, std::uint64_t address, std::uint64_t bytes, Each&& each) {
  std::uint64_t at = address;
  while (at < address + bytes) {
    const auto found = memory.ranges.find(at);
    require(found != memory.ranges.end() && found->second.origin == Origin::mapped);
    at += found->second.bytes;
  }
  require(bytes > 0 && at == address + bytes);
  for (auto range = memory.ranges.find(address); range != memory.ranges.end() && range->first < at;) each(range++);
}

Access access_of(CUmemAccess_flags flags) {
  require(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::write : flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? Access::read : Access::none;
}

void set_access(const CUmemAccessDesc& asked, std::uint64_t address, Range& range) {
  require(asked.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  const Context& reader = context_of(asked.location.id);
  const int owner = range.physical->device;
  require(reader.device == owner || config().peers[static_cast<std::size_t>(reader.device)][static_cast<std::size_t>(owner)], CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  range.access[static_cast<std::size_t>(reader.ordinal)] = access_of(asked.flags);
  // The pages have the widest of the rights; what each device may do is checked by resolve().
  Access widest = Access::none;
  for (const Access each : range.access) widest = std::max(widest, each);
  set_rights(address, range.bytes, widest);
}

// All contexts: any of them may still work on it.
void synchronize_all() {
  for (std::size_t ordinal = 0; ordinal < config().visible.size(); ++ordinal) synchronize(context_of(static_cast<int>(ordinal)));
}

}  // namespace
}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuMemGetAllocationGranularity(std::size_t* ret_bytes, const CUmemAllocationProp* asked, CUmemAllocationGranularity_flags) {
  return in_process("cuMemGetAllocationGranularity", [&] {
    require_vmm();
    check_properties(asked);
    static_cast<void>(context_of(asked->location.id));
    require(ret_bytes != nullptr);
    *ret_bytes = kGranularity;
  });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* ret_handle, std::size_t bytes, const CUmemAllocationProp* asked, unsigned long long flags) {
  return in_process("cuMemCreate", [&] {
    require_vmm();
    check_properties(asked);
    require(ret_handle != nullptr && flags == 0 && bytes > 0 && is_aligned(bytes));
    const int device = context_of(asked->location.id).device;
    *ret_handle = handles().add({Physical::create(device, bytes), asked->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE});
  });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  return in_process("cuMemRelease", [&] {
    const Handle last = handles().get(handle);  // its memory goes after the lock, if nothing maps it
    const std::lock_guard guard(handles().mutex);
    require(handles().open.erase(handle) == 1);
    counts().live_handles.drop();
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* ret_address, std::size_t bytes, std::size_t alignment, CUdeviceptr, unsigned long long flags) {
  return in_process("cuMemAddressReserve", [&] {
    require_vmm();
    require(ret_address != nullptr && flags == 0 && bytes > 0 && is_aligned(bytes) && alignment <= kGranularity && (alignment & (alignment - 1)) == 0);
    const std::uint64_t address = reserve_addresses(bytes);
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    memory.reserved[address] = bytes;
    counts().live_reservations.add();
    *ret_address = address;
  });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return in_process("cuMemAddressFree", [&] {
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    const auto found = memory.reserved.find(address);
    require(found != memory.reserved.end() && found->second == bytes && is_free(memory, address, bytes));
    memory.reserved.erase(found);
    counts().live_reservations.drop();
    give_back_addresses(address, bytes);
  });
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return in_process("cuMemMap", [&] {
    const Handle source = handles().get(handle);
    require(flags == 0 && offset == 0 && bytes > 0 && is_aligned(bytes) && is_aligned(address) && bytes <= source.physical->bytes);
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    require(is_reserved(memory, address, bytes) && is_free(memory, address, bytes));
    map_at(address, *source.physical, bytes, Access::none);
    memory.ranges[address] = {bytes, Origin::mapped, source.physical, {}, nullptr, 0, {}};
    counts().live_mappings.add();
  });
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  return in_process("cuMemUnmap", [&] {
    synchronize_all();
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    for_each_mapping(memory, address, bytes, [&](auto range) {
      unmap_at(range->first, range->second.bytes);
      memory.ranges.erase(range);
      counts().live_mappings.drop();
    });
  });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* asked, std::size_t count) {
  return in_process("cuMemSetAccess", [&] {
    require(asked != nullptr && count > 0);
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    for_each_mapping(memory, address, bytes, [&](auto range) {
      for (std::size_t index = 0; index < count; ++index) set_access(asked[index], range->first, range->second);
    });
  });
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* ret_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
  return in_process("cuMemExportToShareableHandle", [&] {
    const Handle source = handles().get(handle);
    require(ret_handle != nullptr && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && source.exportable);
    const int copy = fcntl(source.physical->fd.get(), F_DUPFD_CLOEXEC, 3);
    require(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    *static_cast<int*>(ret_handle) = copy;
  });
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* ret_handle, void* os_handle, CUmemAllocationHandleType type) {
  return in_process("cuMemImportFromShareableHandle", [&] {
    require_vmm();
    require(config().works("vmm-fd"), CUDA_ERROR_NOT_SUPPORTED);
    require(ret_handle != nullptr && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    UniqueFd file(fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 3));
    require(static_cast<bool>(file));
    *ret_handle = handles().add({Physical::import(std::move(file)), true});
  });
}
