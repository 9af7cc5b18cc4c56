// The gradients of all workers, as one worker sees them, and how it waits for the others.
#pragma once

#include "mlp.hpp"
#include "stop.hpp"

#include <gradshm/gradshm.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace fashion {

inline constexpr std::chrono::seconds kPatience{120};          // for a round or an admission, so that a stuck worker ends in a sentence and not in silence
inline constexpr std::chrono::milliseconds kSignalSlice{200};  // how long a wait may keep us from looking for a signal

// What gradshm answered instead of ok, as a sentence.
struct NotOk : std::runtime_error {
  NotOk(gradshm::Outcome given, const std::string& sentence) : std::runtime_error(sentence), outcome(given) {}
  gradshm::Outcome outcome;
};
void require_ok(gradshm::Outcome outcome, const std::string& what);

// poll(timeout) until it answers something else than timeout, in slices that let a signal through; between them `meanwhile` is called.
template <class Poll, class Meanwhile>
gradshm::Outcome wait_in_slices(Poll poll, Meanwhile meanwhile) {
  for (const auto deadline = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < deadline; meanwhile()) {
    throw_if_stopped();
    if (const gradshm::Outcome outcome = poll(kSignalSlice); outcome != gradshm::Outcome::timeout) return outcome;
  }
  return gradshm::Outcome::timeout;
}

// The network's tensors, and two numbers that every worker hands in beside its gradient; the server adds them up like any other parameter.
[[nodiscard]] gradshm::Layout make_layout();

// Returns the first round that the worker takes part in; refuses a server that does not average.
std::uint64_t await_admission(gradshm::Worker& worker);

// The addresses stay the same for the whole run.
class SharedGradient {
 public:
  explicit SharedGradient(gradshm::Worker& worker);

  // Computes this worker's part and hands it in, last layer first. Round 0: the open one. Returns the round.
  std::uint64_t hand_in(Mlp& mlp, const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples, std::uint64_t round = 0);
  // Returns when the round is closed and its result can be read.
  template <class Meanwhile>
  void wait_for(std::uint64_t round, Meanwhile meanwhile) {
    require_ok(wait_in_slices([&](auto timeout) { return worker_.wait(round, timeout); }, meanwhile), "round " + std::to_string(round));
  }

  [[nodiscard]] const ConstTensors& mean() const { return results_; }
  [[nodiscard]] double mean_loss() const { return worker_.result<double>(loss_)[0]; }
  // How many workers are in the result.
  [[nodiscard]] std::size_t contributors() const { return worker_.result_info(loss_).count; }
  // Over those workers. The server divides by the sum of weights; that is undone here.
  [[nodiscard]] std::int64_t bytes_copied() const;

 private:
  gradshm::Worker& worker_;
  std::size_t loss_, copied_;
  std::array<std::size_t, kTensors.size()> index_{};
  Tensors slots_;
  ConstTensors results_;
};

}  // namespace fashion
