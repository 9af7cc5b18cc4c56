#include "training.hpp"

#include "random.hpp"

#include <cmath>
#include <limits>
#include <numeric>

namespace fashion {

BatchOrder::BatchOrder(std::size_t samples, std::size_t batch, std::uint64_t seed) : order_(samples), batch_(batch), seed_(seed) {}

std::span<const std::uint32_t> BatchOrder::batch(std::size_t round) {
  const std::size_t epoch = round / rounds_per_epoch();
  if (epoch != epoch_) shuffle_epoch(epoch);
  return std::span<const std::uint32_t>(order_).subspan(round % rounds_per_epoch() * batch_, batch_);
}

// Starts from the sorted order every time, so an epoch's order does not depend on the epochs before it.
void BatchOrder::shuffle_epoch(std::size_t epoch) {
  std::iota(order_.begin(), order_.end(), 0u);
  Random random(Random(seed_).bits() + epoch);
  shuffle(std::span(order_), random);
  epoch_ = epoch;
}

std::span<const std::uint32_t> shard(std::span<const std::uint32_t> batch, std::size_t rank, std::size_t workers) {
  const std::size_t begin = batch.size() * rank / workers;
  return batch.subspan(begin, batch.size() * (rank + 1) / workers - begin);
}

std::vector<std::uint32_t> drawn_samples(std::size_t of, std::size_t count, std::uint64_t seed, std::size_t rank, std::uint64_t round) {
  Random random(Random(Random(seed).bits() ^ (rank + 1)).bits() ^ round);
  std::vector<std::uint32_t> samples(count);
  for (std::uint32_t& sample : samples) sample = random.below(static_cast<std::uint32_t>(of));
  return samples;
}

void Sgd::step(const ConstTensors& gradient, const Tensors& weights) {
  const Tensors velocity = velocity_.tensors();
  for (std::size_t t = 0; t < kTensors.size(); ++t) {
    const float* g = gradient[t].data();
    float* v = velocity[t].data();
    float* w = weights[t].data();
    for (std::size_t i = 0; i < kTensors[t].size(); ++i) {
      v[i] = momentum_ * v[i] + g[i];
      w[i] -= learning_rate_ * v[i];
    }
  }
}

TensorSet train_serially(const Dataset& data, const Plan& plan, std::size_t rounds, const std::function<void()>& before_round) {
  TensorSet weights = TensorSet::initial_weights(plan.seed), sum, part;
  BatchOrder order(data.size(), plan.batch, plan.seed);
  Sgd sgd(plan);
  Mlp mlp;
  for (std::size_t round = 0; round < rounds; ++round) {
    before_round();
    const auto batch = order.batch(round);
    for (std::size_t rank = 0; rank < plan.workers; ++rank) {
      TensorSet& target = rank == 0 ? sum : part;
      mlp.gradient(weights.view(), data, shard(batch, rank, plan.workers), target.tensors(), [](std::size_t) {});
      if (rank > 0)
        for (std::size_t i = 0; i < sum.values().size(); ++i) sum.values()[i] += part.values()[i];
    }
    for (float& value : sum.values()) value /= static_cast<float>(plan.batch);
    sgd.step(sum.view(), weights.tensors());
  }
  return weights;
}

double max_abs_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(difference)) return std::numeric_limits<double>::quiet_NaN();
    if (difference > largest) largest = difference;
  }
  return largest;
}

}  // namespace fashion
