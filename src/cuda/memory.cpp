#include "cuda/memory.hpp"

#include <cstring>
#include <map>
#include <mutex>

#include "base/checked.hpp"
#include "base/text.hpp"

namespace gradshm::core::cuda {
namespace {

// What this process has imported by ipc handle. Some drivers refuse a second open of one handle and others count it: here each is opened
// once. Never destroyed, as handles of static storage may outlive everything.
struct Imports {
  using Key = std::pair<Uuid, std::array<std::byte, 64>>;  // device, handle
  std::mutex mutex;  // also held over every open and close
  std::map<Key, std::weak_ptr<void>> opened;
};

Imports& imports() {
  static auto* const all = new Imports;
  return *all;
}

constexpr std::uint64_t kIpcGranularity = std::uint64_t{2} << 20;

CUmemAllocationProp properties(const Device& device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE, prop.location.id = device.handle();
  return prop;
}

// OUT_OF_MEMORY with the figures that the user needs.
void check_allocation(const Device& device, const char* call, CUresult code, std::uint64_t bytes) {
  std::size_t free = 0, total = 0;
  if (code == CUDA_ERROR_OUT_OF_MEMORY && driver().mem_info(&free, &total) == CUDA_SUCCESS)
    throw Error(Status::no_space, device.label() + " has " + format_count(free) + " bytes free of " + format_count(total) + ", " + format_count(bytes) + " are needed (" +
                                      describe(call, code) + ")");
  device.check("allocating", call, code);
}

}  // namespace

const char* to_text(MemoryKind kind) noexcept { return kind == MemoryKind::vmm ? "vmm" : "ipc"; }

std::uint64_t rounded_bytes(const Device& device, std::uint64_t bytes) {
  std::size_t granularity = kIpcGranularity;
  if (device.facts().vmm) {
    const CUmemAllocationProp prop = properties(device);
    device.check("asking for its granularity", "cuMemGetAllocationGranularity", driver().mem_granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  }
  const std::uint64_t unit = std::max<std::uint64_t>(granularity, kIpcGranularity);
  if (bytes > UINT64_MAX / 2) throw Error(Status::no_space, device.label() + " cannot hold " + format_count(bytes) + " bytes");
  return align_up(std::max<std::uint64_t>(bytes, 1), unit);
}

// One reserved range of addresses with one allocation in it; each part is given back if a later step throws.
struct DeviceMemory::Vmm : Block {
  CUmemGenericAllocationHandle allocation = 0;
  bool reserved = false, mapped = false;

  ~Vmm() override {
    if (!device->is_ours()) return;
    const Driver& cu = driver();
    if (mapped) static_cast<void>(cu.mem_unmap(address, bytes));
    if (reserved) static_cast<void>(cu.address_free(address, bytes));
    if (allocation != 0) static_cast<void>(cu.mem_release(allocation));
  }

  void map(Access access) {
    const Driver& cu = driver();
    device->check("reserving addresses", "cuMemAddressReserve", cu.address_reserve(&address, bytes, 0, 0, 0));
    reserved = true;
    device->check("mapping", "cuMemMap", cu.mem_map(address, bytes, 0, allocation, 0));
    mapped = true;
    CUmemAccessDesc rights{};
    rights.location = properties(*device).location;
    rights.flags = access == Access::read_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    device->check("setting rights", "cuMemSetAccess", cu.mem_set_access(address, bytes, &rights, 1));
  }
};

struct DeviceMemory::Allocated : Block {
  ~Allocated() override {
    if (address == 0 || !device->is_ours()) return;
    const Current current(*device);
    static_cast<void>(driver().mem_free(address));
  }
};

// An imported ipc handle.
struct DeviceMemory::Opened : Block {
  ~Opened() override {
    if (address == 0 || !device->is_ours()) return;
    const std::lock_guard lock(imports().mutex);
    const Current current(*device);
    static_cast<void>(driver().ipc_close(address));
  }
};

DeviceMemory DeviceMemory::allocate(const std::shared_ptr<Device>& device, std::uint64_t bytes, MemoryKind kind) {
  const Current current(*device);
  const std::uint64_t rounded = rounded_bytes(*device, bytes);
  if (kind == MemoryKind::ipc) {
    auto block = std::make_shared<Allocated>();
    block->device = device, block->kind = kind, block->bytes = rounded;
    check_allocation(*device, "cuMemAlloc", driver().mem_alloc(&block->address, rounded), rounded);
    return DeviceMemory(std::move(block));
  }
  if (!device->facts().vmm) throw Error(Status::unsupported, device->label() + " has no memory that can be exported as a descriptor (vmm): use ipc");
  auto block = std::make_shared<Vmm>();
  block->device = device, block->kind = kind, block->bytes = rounded;
  const CUmemAllocationProp prop = properties(*device);
  check_allocation(*device, "cuMemCreate", driver().mem_create(&block->allocation, rounded, &prop, 0), rounded);
  block->map(Access::read_write);
  return DeviceMemory(std::move(block));
}

SharedMemory DeviceMemory::share() const {
  const Device& device = *block_->device;
  const Current current(device);
  SharedMemory shared;
  shared.kind = block_->kind, shared.bytes = block_->bytes;
  if (const auto* vmm = dynamic_cast<const Vmm*>(block_.get())) {
    int fd = -1;
    device.check("exporting", "cuMemExportToShareableHandle", driver().mem_export(&fd, vmm->allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    shared.fd.reset(fd);
    return shared;
  }
  CUipcMemHandle handle{};
  device.check("exporting", "cuIpcGetMemHandle", driver().ipc_get(&handle, block_->address));
  static_assert(sizeof handle.reserved == sizeof shared.handle);
  std::memcpy(shared.handle.data(), handle.reserved, sizeof handle.reserved);
  return shared;
}

std::shared_ptr<DeviceMemory::Opened> DeviceMemory::open(const std::shared_ptr<Device>& device, const SharedMemory& shared) {
  Imports& all = imports();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<void>& known = all.opened[{device->facts().uuid, shared.handle}];
  if (auto block = std::static_pointer_cast<Opened>(known.lock()); block && block->device->is_ours()) return block;
  auto block = std::make_shared<Opened>();
  block->device = device, block->kind = MemoryKind::ipc, block->bytes = shared.bytes;
  CUipcMemHandle handle{};
  std::memcpy(handle.reserved, shared.handle.data(), sizeof handle.reserved);
  device->check("opening a handle of the server", "cuIpcOpenMemHandle", driver().ipc_open(&block->address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  known = block;
  std::erase_if(all.opened, [](const auto& entry) { return entry.second.expired(); });
  return block;
}

DeviceMemory DeviceMemory::import(const std::shared_ptr<Device>& device, const SharedMemory& shared, Access access) {
  const Current current(*device);
  if (shared.bytes == 0 || shared.bytes % kIpcGranularity != 0) throw Error(Status::corrupt, "shared device memory of " + format_count(shared.bytes) + " bytes is no whole allocation");
  if (shared.kind == MemoryKind::ipc) return DeviceMemory(open(device, shared));
  auto block = std::make_shared<Vmm>();
  block->device = device, block->kind = shared.kind, block->bytes = shared.bytes;
  void* const fd = reinterpret_cast<void*>(static_cast<std::intptr_t>(shared.fd.get()));  // the driver's convention
  device->check("importing a descriptor of the server", "cuMemImportFromShareableHandle",
                driver().mem_import(&block->allocation, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  block->map(access);
  return DeviceMemory(std::move(block));
}

}  // namespace gradshm::core::cuda
