// What a worker and the serial run have in common: which samples a round uses, how they are cut into shards, and the optimizer.
#pragma once

#include "mlp.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fashion {

struct Plan {
  std::uint64_t seed = 1;
  std::size_t batch = 256;  // samples of one round, over all workers
  float learning_rate = 0.1f;
  float momentum = 0.9f;
  std::size_t workers = 1;
};

// The samples of every round, the same in every process. Each epoch is shuffled anew; what does not fill a batch is left out of it.
class BatchOrder {
 public:
  // batch: 1 to samples.
  BatchOrder(std::size_t samples, std::size_t batch, std::uint64_t seed);
  [[nodiscard]] std::size_t rounds_per_epoch() const noexcept { return order_.size() / batch_; }
  // round: from 0. Valid until the next call.
  [[nodiscard]] std::span<const std::uint32_t> batch(std::size_t round);

 private:
  void shuffle_epoch(std::size_t epoch);

  std::vector<std::uint32_t> order_;
  std::size_t batch_;
  std::uint64_t seed_;
  std::size_t epoch_ = static_cast<std::size_t>(-1);
};

// The part of a batch that worker `rank` computes; sizes differ by one where workers do not divide the batch.
[[nodiscard]] std::span<const std::uint32_t> shard(std::span<const std::uint32_t> batch, std::size_t rank, std::size_t workers);

// The samples of one worker in one round where nobody knows how many workers there are: drawn by seed, rank and round. round: from 1.
[[nodiscard]] std::vector<std::uint32_t> drawn_samples(std::size_t of, std::size_t count, std::uint64_t seed, std::size_t rank, std::uint64_t round);

// SGD with momentum: v = momentum * v + g; w = w - learning_rate * v.
class Sgd {
 public:
  explicit Sgd(const Plan& plan) : learning_rate_(plan.learning_rate), momentum_(plan.momentum) {}
  void step(const ConstTensors& gradient, const Tensors& weights);
  [[nodiscard]] TensorSet& velocity() noexcept { return velocity_; }

 private:
  float learning_rate_, momentum_;
  TensorSet velocity_;
};

// The weights after `rounds` rounds in one process and without gradshm: the same shards, added in rank order in f32, then one
// division by the number of samples. before_round may throw to end it.
[[nodiscard]] TensorSet train_serially(const Dataset& data, const Plan& plan, std::size_t rounds, const std::function<void()>& before_round);

// NaN if any difference is.
[[nodiscard]] double max_abs_difference(std::span<const float> a, std::span<const float> b);

}  // namespace fashion
