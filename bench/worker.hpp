// One worker process of the benchmark: fills its slot once, then commits and waits, round after round, and checks sums.
#pragma once

#include <gradshm/gradshm.hpp>

#include <string>

#include "board.hpp"

namespace gradshm::bench {

struct Job {
  std::string instance;
  unsigned workers;
  unsigned blocks;
  unsigned rounds_per_block;
};

// Throws gradshm::Error or std::runtime_error with the reason where a call fails or a sum is wrong.
void work(const Job& job, const Layout& layout, unsigned worker, Board& board);

}  // namespace gradshm::bench
