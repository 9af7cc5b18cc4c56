// One line of progress on stderr: drawn over itself on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace fashion {

struct Step {
  std::size_t round, rounds;  // closed, of how many
  double loss;                // mean over the samples of recent rounds
  double samples_per_second;
};

// The text without bar, colour and line end.
[[nodiscard]] std::string progress_text(const Step& step);
// "[#####.....]"
[[nodiscard]] std::string progress_bar(std::size_t round, std::size_t rounds, std::size_t width);

class Progress {
 public:
  Progress(std::size_t rounds, std::size_t batch, bool quiet);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void round_closed(std::size_t round, double loss);

 private:
  using Clock = std::chrono::steady_clock;
  void show(const Step& step);

  std::size_t rounds_, batch_;
  bool quiet_, terminal_, colour_;
  Clock::time_point start_, shown_;
  double smooth_loss_ = 0;
  bool line_open_ = false;
};

}  // namespace fashion
