// Looks again and again, and prints what it sees.
#pragma once

#include <cstdint>
#include <string>

#include "cli_common.hpp"

namespace gradshm::tools {

struct TopOptions {
  std::string instance;
  bool json = false;
  std::uint64_t iterations = 0;  // 0 = live, until a signal: a dead server stays in the picture until a new one answers
  std::int64_t interval_ns = 1'000'000'000;
  ColorChoice color = ColorChoice::automatic;
};

// An exit code. Throws core::Error if there is no instance to look at.
[[nodiscard]] int watch(const TopOptions& options);

}  // namespace gradshm::tools
