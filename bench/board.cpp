#include "board.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <ctime>
#include <system_error>

#include "base/clock.hpp"

namespace gradshm::bench {

Board::Board(unsigned workers, unsigned rounds)
    : workers_(workers), bytes_(sizeof(Shared) + sizeof(Stamp) * rounds * workers) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap for the benchmark's shared page");
  shared_ = static_cast<Shared*>(memory);
  stamps_ = reinterpret_cast<Stamp*>(shared_ + 1);
  for (unsigned worker = 0; worker < workers; ++worker) sem_init(&shared_->go[worker], 1, 0);
  sem_init(&shared_->finished, 1, 0);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared_->meeting, &attributes, workers);
  pthread_barrierattr_destroy(&attributes);
}

// The barrier is not destroyed: that would wait for workers that were killed inside it.
Board::~Board() { munmap(shared_, bytes_); }

void Board::start() noexcept {
  for (unsigned worker = 0; worker < workers_; ++worker) sem_post(&shared_->go[worker]);
}

bool Board::wait_one_finished(std::int64_t timeout_ns) noexcept {
  const std::int64_t until = core::now_ns() + timeout_ns;
  const timespec deadline{until / 1'000'000'000, until % 1'000'000'000};
  return sem_clockwait(&shared_->finished, CLOCK_MONOTONIC, &deadline) == 0;
}

void Board::await_start(unsigned worker) noexcept {
  while (sem_wait(&shared_->go[worker]) != 0 && errno == EINTR) {
  }
}

}  // namespace gradshm::bench
