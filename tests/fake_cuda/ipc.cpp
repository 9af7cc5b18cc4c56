// Legacy IPC: a handle of 64 bytes names memory of a process that is alive.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/memory.hpp"

namespace gradshm::fake {
namespace {

constexpr std::uint64_t kMagic = 0x31637069656b6166;  // "fakeipc1"

struct Name {
  std::uint64_t magic, id, bytes;
  std::int32_t process, descriptor;
};
static_assert(sizeof(Name) <= sizeof(CUipcMemHandle));

void require_ipc() { require(config().works("ipc"), CUDA_ERROR_NOT_SUPPORTED); }

UniqueFd watch(pid_t process) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process, 0))); }

// The descriptor may be another file's by now, even the process another process.
std::shared_ptr<Physical> find_physical(const Name& name) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.descriptor);
  UniqueFd file(open(path, O_RDWR | O_CLOEXEC));
  require(static_cast<bool>(file), CUDA_ERROR_INVALID_HANDLE);
  std::shared_ptr<Physical> found;
  try {
    found = Physical::import(std::move(file));
  } catch (const Refusal& refusal) {
    throw Refusal{refusal.code == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_INVALID_HANDLE : refusal.code};
  }
  require(found->id == name.id, CUDA_ERROR_INVALID_HANDLE);
  return found;
}

bool reaches(const Context& context, int device) {
  return context.device == device || config().peers[static_cast<std::size_t>(context.device)][static_cast<std::size_t>(device)];
}

// Counted: what is open already stays where it is.
CUdeviceptr open_again(Memory& memory, const Context& context, std::uint64_t id) {
  for (auto& [address, range] : memory.ranges) {
    if (range.origin != Origin::opened || range.physical->id != id || range.context != &context) continue;
    ++range.opens;
    return address;
  }
  return 0;
}

CUdeviceptr open_first(Memory& memory, Context& context, std::shared_ptr<Physical> physical, UniqueFd owner) {
  const std::uint64_t bytes = physical->bytes, address = reserve_addresses(bytes);
  map_at(address, *physical, bytes, Access::write);
  std::array<Access, kMostDevices> access{};
  access[static_cast<std::size_t>(context.ordinal)] = Access::write;
  memory.ranges[address] = {bytes, Origin::opened, std::move(physical), access, &context, 1, std::move(owner)};
  counts().live_opens.add();
  return address;
}

CUdeviceptr open_handle(Context& context, const Name& name) {
  require(name.magic == kMagic, CUDA_ERROR_INVALID_HANDLE);
  require(name.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
  UniqueFd owner = watch(name.process);
  require(static_cast<bool>(owner), CUDA_ERROR_INVALID_HANDLE);
  auto physical = find_physical(name);
  require(reaches(context, physical->device), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  const CUdeviceptr already = open_again(memory, context, name.id);
  return already != 0 ? already : open_first(memory, context, std::move(physical), std::move(owner));
}

void close_handle(CUdeviceptr pointer) {
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  const auto found = memory.ranges.find(pointer);
  require(found != memory.ranges.end() && found->second.origin == Origin::opened);
  if (--found->second.opens > 0) return;
  unmap_at(found->first, found->second.bytes);
  give_back_addresses(found->first, found->second.bytes);
  memory.ranges.erase(found);
  counts().live_opens.drop();
}

}  // namespace
}  // namespace gradshm::fake

using namespace gradshm::fake;

// Of a pointer into an allocation: the handle of the whole.
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* ret_handle, CUdeviceptr pointer) {
  return in_context("cuIpcGetMemHandle", [&](Context&) {
    require_ipc();
    require(ret_handle != nullptr);
    Memory& memory = Memory::get();
    const std::lock_guard guard(memory.mutex);
    const auto found = memory.find(pointer);
    require(found != memory.ranges.end() && found->second.origin == Origin::allocated);
    const Physical& physical = *found->second.physical;
    const Name name{kMagic, physical.id, physical.bytes, getpid(), physical.fd.get()};
    *ret_handle = {};
    std::memcpy(ret_handle, &name, sizeof name);
  });
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* ret_pointer, CUipcMemHandle handle, unsigned int flags) {
  return in_context("cuIpcOpenMemHandle", [&](Context& context) {
    require_ipc();
    require(ret_pointer != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    Name name{};
    std::memcpy(&name, &handle, sizeof name);
    *ret_pointer = open_handle(context, name);
  });
}

// Does not wait for streams: what still runs on the memory is lost.
CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer) {
  return in_context("cuIpcCloseMemHandle", [&](Context&) { close_handle(pointer); });
}
