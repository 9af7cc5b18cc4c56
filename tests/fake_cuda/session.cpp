#include "fake_cuda/session.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/config.hpp"

namespace gradshm::fake {
namespace {

constexpr int kSlots = 64;          // processes
constexpr int kAllocations = 4096;  // of all of them together

struct Allocation {
  std::uint64_t id, bytes, device, holders;  // a bit for each slot; no holders: the entry is free
};

constexpr std::uint64_t bit(int slot) { return std::uint64_t{1} << slot; }

// Byte 0 of the file is the lock of its contents, byte 1 + slot says that the slot's process lives. Such locks go with the process, are not
// inherited by forked children, and are lost with any descriptor of the file, so that there is one descriptor only.
struct flock byte_lock(short type, off_t at) {
  struct flock lock {};
  lock.l_type = type, lock.l_whence = SEEK_SET, lock.l_start = at, lock.l_len = 1;
  return lock;
}

[[noreturn]] void give_up(const char* call) {
  std::fprintf(stderr, "fake CUDA driver: GRADSHM_FAKE_SESSION=%s: %s fails (error %d)\n", config().session.c_str(), call, errno);
  std::_Exit(kGaveUp);
}

int open_file() {
  if (config().session.empty()) return memfd_create("gradshm-fake-session", MFD_CLOEXEC);
  return open(config().session.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

}  // namespace

// A new file is all zeros, which is the empty state.
struct Session::State {
  std::uint64_t slots;
  Allocation allocations[kAllocations];
};

class Session::Locked {
 public:
  explicit Locked(Session& session) : session_(session), guard_(session.mutex_) {
    struct flock lock = byte_lock(F_WRLCK, 0);
    while (fcntl(session_.fd_, F_SETLKW, &lock) != 0)
      if (errno != EINTR) give_up("F_SETLKW");
  }
  ~Locked() {
    struct flock lock = byte_lock(F_UNLCK, 0);
    fcntl(session_.fd_, F_SETLK, &lock);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Session& session_;
  std::lock_guard<std::mutex> guard_;
};

Session& Session::get() {
  static Session* const only = new Session;
  return *only;
}

Session::Session() : fd_(open_file()) {
  if (fd_ < 0) give_up("open");
  if (ftruncate(fd_, sizeof(State)) != 0) give_up("ftruncate");
  void* const memory = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) give_up("mmap");
  state_ = static_cast<State*>(memory);
  const Locked locked(*this);
  forget_the_dead();
  take_slot();
}

void Session::take_slot() {
  for (slot_ = 0; slot_ < kSlots && (state_->slots & bit(slot_)) != 0;) ++slot_;
  if (slot_ == kSlots) give_up("taking one of 64 slots for processes");
  struct flock lock = byte_lock(F_WRLCK, 1 + slot_);
  if (fcntl(fd_, F_SETLK, &lock) != 0) give_up("F_SETLK");
  state_->slots |= bit(slot_);
}

void Session::forget_the_dead() {
  std::uint64_t dead = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot == slot_ || (state_->slots & bit(slot)) == 0) continue;
    struct flock lock = byte_lock(F_WRLCK, 1 + slot);
    if (fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) dead |= bit(slot);
  }
  if (dead == 0) return;
  state_->slots &= ~dead;
  for (Allocation& allocation : state_->allocations) allocation.holders &= ~dead;
}

std::uint64_t Session::used(int device) const {
  std::uint64_t bytes = 0;
  for (const Allocation& allocation : state_->allocations)
    if (allocation.holders != 0 && allocation.device == static_cast<std::uint64_t>(device)) bytes += allocation.bytes;
  return bytes;
}

std::uint64_t Session::used_bytes(int device) {
  const Locked locked(*this);
  forget_the_dead();
  return used(device);
}

std::uint64_t Session::create(int device, std::uint64_t bytes) {
  std::uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != sizeof id) give_up("getrandom");
  const Locked locked(*this);
  forget_the_dead();
  const std::uint64_t in_use = used(device);
  require(bytes <= config().memory_bytes && in_use <= config().memory_bytes - bytes, CUDA_ERROR_OUT_OF_MEMORY);
  add_holder(id, device, bytes);
  return id;
}

void Session::hold(std::uint64_t id, int device, std::uint64_t bytes) {
  const Locked locked(*this);
  add_holder(id, device, bytes);
}

void Session::add_holder(std::uint64_t id, int device, std::uint64_t bytes) {
  Allocation* place = nullptr;
  for (Allocation& allocation : state_->allocations) {
    if (allocation.holders != 0 && allocation.id == id) {
      allocation.holders |= bit(slot_);
      return;
    }
    if (allocation.holders == 0 && place == nullptr) place = &allocation;
  }
  require(place != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  *place = {id, bytes, static_cast<std::uint64_t>(device), bit(slot_)};
}

void Session::drop(std::uint64_t id) {
  const Locked locked(*this);
  for (Allocation& allocation : state_->allocations)
    if (allocation.id == id) allocation.holders &= ~bit(slot_);
}

bool Session::others_hold(std::uint64_t id) {
  const Locked locked(*this);
  forget_the_dead();
  for (const Allocation& allocation : state_->allocations)
    if (allocation.id == id && (allocation.holders & ~bit(slot_)) != 0) return true;
  return false;
}

}  // namespace gradshm::fake
