// Device memory that one process allocates and others import, in the two ways that there are.
//
// vmm: cuMemCreate, passed as a POSIX descriptor over the socket. The memory lives as long as anybody has it, and each importer gets the
// rights it is given. ipc: cuMemAlloc and cuIpcGetMemHandle, for drivers without the first; the memory dies with its allocator, importers
// always may write, and freeing it while somebody has it open is undefined, so its owner keeps it until they have gone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/unique_fd.hpp"
#include "cuda/device.hpp"

namespace gradshm::core::cuda {

enum class MemoryKind : std::uint32_t { vmm = 1, ipc = 2 };
enum class Access : bool { read_only, read_write };

[[nodiscard]] const char* to_text(MemoryKind kind) noexcept;

// What travels to an importer.
struct SharedMemory {
  MemoryKind kind = MemoryKind::vmm;
  std::uint64_t bytes = 0;                // of the whole allocation
  std::array<std::byte, 64> handle{};     // ipc
  UniqueFd fd;                            // vmm
};

// Whole allocations only, in units of the device's granularity (2 MiB): a handle of an inner pointer is that of its base. Movable,
// freed or closed at the end; in a forked child nothing happens. Calls may come from any thread.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // Throws Error(no_space) with the bytes wanted and free, Error(unsupported) where the device lacks `kind`, Error(system).
  [[nodiscard]] static DeviceMemory allocate(const std::shared_ptr<Device>& device, std::uint64_t bytes, MemoryKind kind);
  // Not of memory that this process allocated: legacy IPC cannot, and whoever allocated has the address. A second import of the same ipc
  // handle gives the same address, opened once. Throws Error(system | corrupt).
  [[nodiscard]] static DeviceMemory import(const std::shared_ptr<Device>& device, const SharedMemory& shared, Access access);
  DeviceMemory(DeviceMemory&& other) noexcept = default;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept = default;

  [[nodiscard]] SharedMemory share() const;
  [[nodiscard]] CUdeviceptr address() const noexcept { return block_ ? block_->address : 0; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return block_ ? block_->bytes : 0; }
  [[nodiscard]] MemoryKind kind() const noexcept { return block_->kind; }
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }

 private:
  struct Block {
    virtual ~Block() = default;
    std::shared_ptr<Device> device;
    MemoryKind kind = MemoryKind::vmm;
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
  };
  struct Vmm;
  struct Allocated;
  struct Opened;
  explicit DeviceMemory(std::shared_ptr<Block> block) : block_(std::move(block)) {}
  [[nodiscard]] static std::shared_ptr<Opened> open(const std::shared_ptr<Device>& device, const SharedMemory& shared);

  std::shared_ptr<Block> block_;
};

// `bytes` rounded up to what the device allocates in.
[[nodiscard]] std::uint64_t rounded_bytes(const Device& device, std::uint64_t bytes);

}  // namespace gradshm::core::cuda
