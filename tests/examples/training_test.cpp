#include "fashion/training.hpp"

#include "fashion/random.hpp"
#include "made_up_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>

namespace {

using namespace fashion;

const auto kNothing = [] {};

std::vector<std::uint32_t> copy(std::span<const std::uint32_t> samples) { return {samples.begin(), samples.end()}; }

// What the workers and the server do together, with a private gradient for each worker.
TensorSet train_as_workers_do(const Dataset& data, const Plan& plan, std::size_t rounds) {
  TensorSet weights = TensorSet::initial_weights(plan.seed), mean;
  std::vector<TensorSet> slots(plan.workers);
  BatchOrder order(data.size(), plan.batch, plan.seed);
  Sgd sgd(plan);
  Mlp mlp;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t rank = plan.workers; rank-- > 0;)  // computed in another order than they are added in
      mlp.gradient(weights.view(), data, shard(order.batch(round), rank, plan.workers), slots[rank].tensors(), [](std::size_t) {});
    for (std::size_t i = 0; i < mean.values().size(); ++i) {
      float sum = slots[0].values()[i];
      for (std::size_t rank = 1; rank < plan.workers; ++rank) sum += slots[rank].values()[i];
      mean.values()[i] = sum / static_cast<float>(plan.batch);
    }
    sgd.step(mean.view(), weights.tensors());
  }
  return weights;
}

}  // namespace

TEST_CASE("every epoch uses every sample at most once, in an order of its own") {
  BatchOrder order(103, 10, 1);
  CHECK(order.rounds_per_epoch() == 10);
  std::vector<std::vector<std::uint32_t>> epochs;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint32_t> used;
    for (std::size_t round = 0; round < 10; ++round)
      for (const std::uint32_t sample : order.batch(epoch * 10 + round)) used.push_back(sample);
    CHECK(std::set(used.begin(), used.end()).size() == 100);
    CHECK(*std::max_element(used.begin(), used.end()) < 103);
    epochs.push_back(used);
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
}

TEST_CASE("the order depends on the seed and the round only, not on what was asked before") {
  BatchOrder straight(200, 16, 5), jumping(200, 16, 5), other(200, 16, 6);
  for (std::size_t round = 0; round < 40; ++round) (void)straight.batch(round);
  CHECK(copy(straight.batch(41)) == copy(jumping.batch(41)));
  CHECK(copy(straight.batch(3)) == copy(jumping.batch(3)));
  CHECK(copy(other.batch(3)) != copy(jumping.batch(3)));
}

TEST_CASE("the shuffle has the same outcome on every machine") {
  std::vector<int> items{0, 1, 2, 3, 4, 5, 6, 7};
  Random random(42);
  shuffle(std::span(items), random);
  CHECK(items == std::vector<int>{4, 3, 2, 0, 7, 6, 1, 5});
}

TEST_CASE("shards cover a batch without overlap, in rank order, for any number of workers") {
  std::vector<std::uint32_t> batch(256);
  std::iota(batch.begin(), batch.end(), 0u);
  for (std::size_t workers = 1; workers <= 16; ++workers) {
    std::vector<std::uint32_t> together;
    for (std::size_t rank = 0; rank < workers; ++rank) {
      const auto part = shard(batch, rank, workers);
      CHECK(part.size() >= 256 / workers);
      CHECK(part.size() <= 256 / workers + 1);
      together.insert(together.end(), part.begin(), part.end());
    }
    CHECK(together == batch);
  }
}

TEST_CASE("shard gradients added in rank order train to the same bits as the serial run, also where shards are uneven") {
  const Dataset data = made_up_data(24);
  for (const std::size_t workers : {1u, 2u, 5u}) {
    const Plan plan{.seed = 2, .batch = 8, .workers = workers};
    const TensorSet serial = train_serially(data, plan, 4, kNothing);
    const TensorSet shared = train_as_workers_do(data, plan, 4);
    CHECK(max_abs_difference(serial.values(), shared.values()) == 0.0);
  }
}

TEST_CASE("training learns") {
  const Dataset data = made_up_data(120), test = made_up_data(50, 8);
  const Plan plan{.batch = 12, .learning_rate = 0.02f, .workers = 4};
  Mlp mlp;
  CHECK(accuracy(mlp, TensorSet::initial_weights(plan.seed).view(), test) < 0.5);
  CHECK(accuracy(mlp, train_serially(data, plan, 30, kNothing).view(), test) > 0.8);
}

TEST_CASE("the serial run can be ended between rounds") {
  int asked = 0;
  const auto stop_at_third = [&] {
    if (++asked == 3) throw std::runtime_error("stop");
  };
  CHECK_THROWS_AS((void)train_serially(made_up_data(8), Plan{.batch = 4}, 100, stop_at_third), std::runtime_error);
  CHECK(asked == 3);
}

TEST_CASE("momentum carries the velocity from step to step") {
  TensorSet gradient, weights;
  gradient.values()[0] = 1.0f;
  Sgd sgd(Plan{.learning_rate = 0.5f, .momentum = 0.5f});
  sgd.step(gradient.view(), weights.tensors());
  CHECK(weights.values()[0] == -0.5f);
  sgd.step(gradient.view(), weights.tensors());
  CHECK(weights.values()[0] == -1.25f);
  CHECK(weights.values()[1] == 0.0f);
}

TEST_CASE("a difference that is not a number is not mistaken for none") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a{1, 2, 3}, b{1, nan, 3}, c{1, 2.5, 2};
  CHECK(max_abs_difference(a, a) == 0.0);
  CHECK(max_abs_difference(a, c) == 1.0);
  CHECK(std::isnan(max_abs_difference(a, b)));
  CHECK(std::isnan(max_abs_difference(b, b)));
}
