// Kernel features are tried rather than derived from a version: seccomp profiles, gVisor and backports make versions lie.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

#include "base/pidfd.hpp"
#include "doctor_facts.hpp"
#include "memory/memfd.hpp"
#include "protocol/wire.hpp"

namespace gradshm::tools {
namespace {

using core::MemFd;
using core::UniqueFd;
using Access = core::Mapping::Access;

constexpr std::uint64_t kBytes = core::kPageBytes;
constexpr int kWaitMs = 1000;  // for what comes at once where it works

// Of the call that failed last, never 0.
int failure() { return errno != 0 ? errno : EIO; }

// `use` returns 0 or an errno, or throws.
Tried try_out(const std::string& feature, const std::function<int()>& use) {
  errno = 0;
  try {
    const int error = use();
    return {feature, error == 0 ? "" : std::strerror(error)};
  } catch (const core::Error& error) {
    return {feature, error.what()};
  }
}

int try_seals() {
  const MemFd file = MemFd::create("gradshm-doctor", kBytes);
  file.allocate();
  file.seal(core::kSealShrink | core::kSealGrow);
  return ftruncate(file.fd(), 0) == 0 ? ENOTSUP : errno == EPERM ? 0 : failure();  // what is sealed is refused
}

// The old mapping still stores, and nobody gets a new one.
int try_future_write() {
  const MemFd file = MemFd::create("gradshm-doctor", kBytes);
  const core::Mapping writer(file, Access::read_write, kBytes, "a try");
  file.seal(core::kSealFutureWrite);
  *writer.at<char>(0) = 'x';
  void* const other = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (other == MAP_FAILED) return errno == EPERM ? 0 : failure();
  munmap(other, kBytes);
  return ENOTSUP;
}

int try_pidfd() { return core::own_pidfd() ? 0 : failure(); }

// A child that has ended makes its pidfd readable.
int try_pidfd_poll() {
  const pid_t child = fork();
  if (child < 0) return failure();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const UniqueFd fd(static_cast<int>(syscall(434 /* pidfd_open */, child, 0)));
  const int opened = fd ? 0 : failure();
  kill(child, SIGKILL);
  pollfd probe{fd.get(), POLLIN, 0};
  const int readable = opened == 0 ? poll(&probe, 1, kWaitMs) : 0;
  waitpid(child, nullptr, 0);
  return opened != 0 ? opened : readable == 1 && (probe.revents & POLLIN) != 0 ? 0 : ETIMEDOUT;
}

int try_doorbell() {
  const UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  const std::uint64_t one = 1;
  if (!bell || !epoll || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.get(), &event) != 0) return failure();
  if (write(bell.get(), &one, sizeof one) != sizeof one) return failure();
  return epoll_wait(epoll.get(), &event, 1, kWaitMs) == 1 ? 0 : ETIMEDOUT;
}

// As workers sleep and the server wakes them. The word never changes, so only a wake-up ends the wait early.
int try_futex() {
  const MemFd file = MemFd::create("gradshm-doctor", kBytes);
  const core::Mapping one(file, Access::read_only, kBytes, "a try"), other(file, Access::read_only, kBytes, "a try");
  long waited = -1;
  std::thread sleeper([&] {
    const timespec timeout{kWaitMs / 1000, 0};
    waited = syscall(SYS_futex, one.data(), FUTEX_WAIT, 0, &timeout, nullptr, 0) == 0 ? 0 : failure();
  });
  long woken = 0;
  for (int i = 0; i < 2 * kWaitMs && woken == 0; ++i) {
    woken = syscall(SYS_futex, other.data(), FUTEX_WAKE, 1, nullptr, nullptr, 0);
    if (woken < 0) woken = 0, i = 2 * kWaitMs;
    const timespec pause{0, 1'000'000};
    if (woken == 0) nanosleep(&pause, nullptr);
  }
  sleeper.join();
  return woken == 1 ? 0 : waited > 0 ? static_cast<int>(waited) : ETIMEDOUT;
}

int try_passing() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return failure();
  const UniqueFd a(ends[0]), b(ends[1]), passed(eventfd(0, EFD_CLOEXEC));
  const std::array<int, 1> fds{passed.get()};
  core::Packet packet;
  if (!core::send_message(a.get(), core::Ack{}, fds)) return failure();
  return core::receive_packet(b.get(), packet) == core::Received::packet && packet.fds.size() == 1 ? 0 : EBADMSG;
}

// The server reads there whose pidfd it was sent.
int try_fdinfo() {
  const UniqueFd probe(open("/proc/self/fdinfo/0", O_RDONLY | O_CLOEXEC));
  return probe || errno == ENOENT ? 0 : failure();
}

}  // namespace

std::vector<Tried> try_features() {
  return {try_out("memfd with seals", try_seals),
          try_out("F_SEAL_FUTURE_WRITE", try_future_write),
          try_out("pidfd_open", try_pidfd),
          try_out("poll of a pidfd", try_pidfd_poll),
          try_out("eventfd with epoll", try_doorbell),
          try_out("futex through two read-only mappings", try_futex),
          try_out("descriptors over SOCK_SEQPACKET", try_passing),
          try_out("/proc/self/fdinfo", try_fdinfo)};
}

}  // namespace gradshm::tools
