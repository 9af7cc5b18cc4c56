// What a server is started with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layout/layout.hpp"

namespace gradshm::core {

enum class Op : std::uint32_t { sum = GRADSHM_SUM, mean = GRADSHM_MEAN, weighted_mean = GRADSHM_WEIGHTED_MEAN };

enum class LogLevel : int { debug = 0, info = 1, warning = 2, error = 3 };
using LogSink = std::function<void(LogLevel, const std::string&)>;

struct ServerOptions {
  std::string name = "default";
  std::string layout_path;           // empty: the first worker's registration is the layout
  Op op = Op::mean;
  unsigned max_workers = 64;         // 1 to 256
  unsigned expect = 1;               // round 1 opens with that many ready workers
  LayoutOptions layout;
  unsigned reducer_threads = 0;      // 0 = all CPUs
  std::int64_t spin_ns = 50'000;     // how long the loop looks for work before it sleeps
  std::int64_t drain_ns = 5'000'000'000;
  std::int64_t round_deadline_ns = 0;              // from a round's first commit; 0 = none
  std::int64_t rejoin_timeout_ns = 30'000'000'000;  // how long the workers of a killed server are waited for, and look for a successor
  std::uint64_t memory_budget = 0;                 // bytes of slots, those included that evicted workers still hold; 0 = 2 * max_workers slots
  std::string socket_group;                        // members of this group may attach too; "" = only our user and root
  LogSink log = [](LogLevel, const std::string&) {};
};

// Throws Error(invalid) that names the option and its range.
void check_options(const ServerOptions& options);

}  // namespace gradshm::core
