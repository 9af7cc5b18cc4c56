// The all-reduce benchmark: one gradshmd, W worker processes, and the memory floor in the same minute on the same cores.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "board.hpp"

namespace gradshm::bench {

struct AllreduceOptions {
  unsigned workers = 4;
  std::string layout_path;       // empty: one parameter of `numel` elements
  std::uint64_t numel = 0;
  std::string dtype = "f32";     // of that parameter
  unsigned rounds = 100;
  std::uint64_t bucket_bytes = 0;  // 0: the server's default
  unsigned reducer_threads = 0;    // 0: all CPUs
  unsigned floor_threads = 0;      // 0: all CPUs
  std::string daemon;
};

struct AllreduceResult {
  Facts facts;
  unsigned floor_threads;
  std::vector<std::int64_t> latencies_ns;  // from the start of the round's last commit until all workers have seen the result
  std::vector<std::int64_t> floors_ns;
  std::vector<double> ratios;              // of each block of rounds to the floor measured right before and right after it
};

// Set by a signal: the run then ends with an exception, everything cleaned up.
extern volatile std::sig_atomic_t interrupted;

// Throws std::exception with a sentence where a process ends early, a call fails or a sum is wrong.
AllreduceResult run_allreduce(const AllreduceOptions& options);

}  // namespace gradshm::bench
