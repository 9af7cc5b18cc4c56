// The command line of train_fashion, and what `gradshm run` put into the environment.
#pragma once

#include "training.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace fashion {

struct Options {
  std::string instance;  // empty: GRADSHM_INSTANCE, else "default"
  std::string data_directory = "/usr/share/datasets/fashion-mnist";
  Plan plan;             // workers: GRADSHM_WORLD_SIZE, else 1
  std::size_t rank = 0;  // GRADSHM_RANK
  std::size_t epochs = 8;
  std::optional<std::size_t> rounds;  // instead of epochs
  std::size_t check_rounds = 100;
  std::string checkpoint;              // not empty: workers may come and go
  std::size_t checkpoint_every = 10;   // rounds; who waits for a newcomer writes it anyway, and each round would cost a tenth of the time
  std::size_t leave_after_round = 0;   // 0: stays to the end
  bool quiet = false;
};

struct ParsedOptions {
  Options options;
  std::optional<int> exit_code;  // set where there is nothing more to do: help, version, wrong usage (already printed)
};

// Throws std::runtime_error where the environment makes no sense.
[[nodiscard]] ParsedOptions parse_options(int argc, char** argv);

}  // namespace fashion
