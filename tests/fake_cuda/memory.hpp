// What is mapped where in this process, and with which rights for which device.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/unique_fd.hpp"
#include "fake_cuda/config.hpp"

namespace gradshm::fake {

struct Context;
using core::UniqueFd;

inline constexpr std::uint64_t kGranularity = 2u << 20;

// Memory of a device, as a memfd whose name says so. One per allocation and process, however often it is imported.
struct Physical {
  UniqueFd fd;
  std::uint64_t id = 0, bytes = 0;
  int device = 0;  // its number
  Physical(UniqueFd file, std::uint64_t its_id, std::uint64_t size, int on) : fd(std::move(file)), id(its_id), bytes(size), device(on) {}
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();
  [[nodiscard]] static std::shared_ptr<Physical> create(int device, std::uint64_t bytes);
  // Throws Refusal: invalid value for a descriptor that is none of ours, invalid device for a device that is not visible.
  [[nodiscard]] static std::shared_ptr<Physical> import(UniqueFd file);
};

enum class Access : unsigned char { none, read, write };
enum class Origin { allocated, mapped, opened };

struct Range {
  std::uint64_t bytes = 0;
  Origin origin = Origin::mapped;
  std::shared_ptr<Physical> physical;
  std::array<Access, kMostDevices> access{};  // by ordinal
  Context* context = nullptr;                 // not for mapped ones
  int opens = 0;                              // of opened ones
  UniqueFd owner;                             // pidfd, of opened ones
};

struct Registered {
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  Context* context = nullptr;
};

struct Memory {
  std::mutex mutex;
  std::map<std::uint64_t, Range> ranges;             // by address
  std::map<std::uint64_t, std::uint64_t> reserved;   // address, bytes
  std::map<std::uint64_t, Registered> registered;    // by host address
  [[nodiscard]] static Memory& get();
  // The range that an address lies in, or none.
  [[nodiscard]] std::map<std::uint64_t, Range>::iterator find(std::uint64_t address);
};

// Registered host memory as the device sees it: a pointer that no host code can follow.
inline constexpr std::uint64_t kHostTag = std::uint64_t{1} << 60;

// space.cpp. Addresses without rights, aligned to 2 MiB, and memory at them.
[[nodiscard]] std::uint64_t reserve_addresses(std::uint64_t bytes);
void map_at(std::uint64_t address, const Physical& physical, std::uint64_t bytes, Access access);
void set_rights(std::uint64_t address, std::uint64_t bytes, Access access);
void unmap_at(std::uint64_t address, std::uint64_t bytes);           // the addresses stay reserved
void give_back_addresses(std::uint64_t address, std::uint64_t bytes);  // not at once

// resolve.cpp. The host address of operands of an operation that runs now; throws Refusal(illegal address), which sticks.
[[nodiscard]] void* resolve(Context& context, CUdeviceptr pointer, std::uint64_t bytes, Access access);
// What a call can tell at once: throws Refusal(invalid value) unless all of it is, or is not, memory that a device can reach.
void check_device_operand(CUdeviceptr pointer, std::uint64_t bytes);
void check_host_operand(const void* pointer, std::uint64_t bytes);

void forget_memory_of(Context& context);

}  // namespace gradshm::fake
