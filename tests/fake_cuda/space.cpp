// Pages and addresses.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/memory.hpp"
#include "fake_cuda/session.hpp"

namespace gradshm::fake {
namespace {

constexpr const char* kNameFormat = "gradshm-fake-gpu-%d-%016" PRIx64;

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }
int rights(Access access) { return access == Access::none ? PROT_NONE : access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE; }

// What this process has of each allocation.
std::map<std::uint64_t, std::weak_ptr<Physical>>& known(const std::lock_guard<std::mutex>&) {
  static auto* const all = new std::map<std::uint64_t, std::weak_ptr<Physical>>;
  return *all;
}
std::mutex& known_mutex() {
  static auto* const only = new std::mutex;
  return *only;
}

}  // namespace

std::shared_ptr<Physical> Physical::create(int device, std::uint64_t bytes) {
  const std::uint64_t id = Session::get().create(device, bytes);
  char name[64];
  std::snprintf(name, sizeof name, kNameFormat, device, id);
  UniqueFd file(memfd_create(name, MFD_CLOEXEC));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    Session::get().drop(id);
    throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
  }
  auto made = std::make_shared<Physical>(std::move(file), id, bytes, device);
  const std::lock_guard guard(known_mutex());
  known(guard)[id] = made;
  return made;
}

std::shared_ptr<Physical> Physical::import(UniqueFd file) {
  char link[64], target[128], format[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file.get());
  const ssize_t length = readlink(link, target, sizeof target - 1);
  target[std::max<ssize_t>(length, 0)] = '\0';
  int device = 0;
  std::uint64_t id = 0;
  std::snprintf(format, sizeof format, "/memfd:gradshm-fake-gpu-%%d-%%%s", SCNx64);
  require(std::sscanf(target, format, &device, &id) == 2);
  require(std::ranges::find(config().visible, device) != config().visible.end(), CUDA_ERROR_INVALID_DEVICE);
  const std::lock_guard guard(known_mutex());
  if (auto found = known(guard)[id].lock()) return found;
  const auto bytes = static_cast<std::uint64_t>(lseek(file.get(), 0, SEEK_END));
  Session::get().hold(id, device, bytes);
  auto made = std::make_shared<Physical>(std::move(file), id, bytes, device);
  known(guard)[id] = made;
  return made;
}

// Import may have made a new one in the meantime, under the same number; it holds the allocation then.
Physical::~Physical() {
  const std::lock_guard guard(known_mutex());
  auto& all = known(guard);
  if (const auto found = all.find(id); found != all.end() && !found->second.expired()) return;
  all.erase(id);
  Session::get().drop(id);
}

std::uint64_t reserve_addresses(std::uint64_t bytes) {
  void* const wide = mmap(nullptr, bytes + kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(wide != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  const auto begin = reinterpret_cast<std::uint64_t>(wide), aligned = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned != begin) munmap(wide, aligned - begin);
  if (aligned - begin != kGranularity) munmap(at(aligned + bytes), kGranularity - (aligned - begin));
  return aligned;
}

// Forked children of the process have no part in it.
void map_at(std::uint64_t address, const Physical& physical, std::uint64_t bytes, Access access) {
  void* const memory = mmap(at(address), bytes, rights(access), MAP_SHARED | MAP_FIXED, physical.fd.get(), 0);
  require(memory != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
  madvise(memory, bytes, MADV_DONTFORK);
}

void set_rights(std::uint64_t address, std::uint64_t bytes, Access access) {
  require(mprotect(at(address), bytes, rights(access)) == 0, CUDA_ERROR_MAP_FAILED);
}

void unmap_at(std::uint64_t address, std::uint64_t bytes) {
  void* const memory = mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  require(memory != MAP_FAILED, CUDA_ERROR_UNMAP_FAILED);
}

// The last 64 stay reserved, so that stale pointers meet nothing.
void give_back_addresses(std::uint64_t address, std::uint64_t bytes) {
  static auto* const mutex = new std::mutex;
  static auto* const stale = new std::deque<std::pair<std::uint64_t, std::uint64_t>>;
  const std::lock_guard guard(*mutex);
  stale->emplace_back(address, bytes);
  if (stale->size() <= 64) return;
  munmap(at(stale->front().first), stale->front().second);
  stale->pop_front();
}

}  // namespace gradshm::fake
