// What the benchmark's processes share: one anonymous mapping, made before the workers are forked. Not part of what is measured.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <cstddef>
#include <cstdint>

namespace gradshm::bench {

// Of what the instance holds; written by worker 0 before its first `finish`.
struct Facts {
  std::uint64_t parameters, buckets, elements, bytes;
  std::int32_t dtype;  // 0: several
};

struct Stamp {
  std::int64_t commit_ns, seen_ns;  // the commit call starts; the wait has returned
};

class Board {
 public:
  Board(unsigned workers, unsigned rounds);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  [[nodiscard]] Facts& facts() noexcept { return shared_->facts; }
  [[nodiscard]] Stamp& stamp(unsigned round, unsigned worker) noexcept { return stamps_[round * workers_ + worker]; }

  // The parent: lets every worker go on; false if one has not finished within `timeout_ns`.
  void start() noexcept;
  [[nodiscard]] bool wait_one_finished(std::int64_t timeout_ns) noexcept;

  // A worker: sleeps until the parent starts the next block; says that it is done; meets the others, none left behind.
  void await_start(unsigned worker) noexcept;
  void finish() noexcept { sem_post(&shared_->finished); }
  void meet() noexcept { pthread_barrier_wait(&shared_->meeting); }

 private:
  static constexpr unsigned kMaxWorkers = 256;
  struct Shared {
    sem_t go[kMaxWorkers];
    sem_t finished;
    pthread_barrier_t meeting;
    Facts facts;
  };

  unsigned workers_;
  std::size_t bytes_;
  Shared* shared_;
  Stamp* stamps_;  // behind it in the same mapping, a row of workers for every round
};

}  // namespace gradshm::bench
