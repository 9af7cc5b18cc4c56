#include "model.hpp"

#include "../fashion/random.hpp"

#include <algorithm>
#include <vector>

namespace policies {
namespace {

using fashion::Random;

constexpr float kRate = 0.02f, kMomentum = 0.9f;

// A stream of its own for every purpose.
Random random_for(std::uint64_t seed, std::uint64_t rank, std::uint64_t round, std::uint64_t policy) {
  std::uint64_t state = seed;
  for (const std::uint64_t part : {rank, round, policy}) state = Random(state ^ (part + 1)).bits();
  return Random(state);
}

// The teacher's weights, then its biases.
std::vector<float> teacher(std::uint64_t seed, std::size_t policy) {
  std::vector<float> values(kShapes[policy].size());
  Random random = random_for(seed, 1000, 0, policy);
  for (float& value : values) value = random.symmetric(1.0f);
  return values;
}

float output(const float* values, const Shape& shape, std::size_t row, std::span<const float> input) {
  float sum = values[shape.outputs * shape.inputs + row];
  for (std::size_t i = 0; i < shape.inputs; ++i) sum += values[row * shape.inputs + i] * input[i];
  return sum;
}

}  // namespace

std::size_t samples_of(std::uint64_t seed, int rank, std::uint64_t round, std::size_t policy) {
  if (policy == 1 && rank == kWithoutB) return 0;
  return 1 + random_for(seed, static_cast<std::uint64_t>(rank), round, policy + 10).below(40);
}

void compute_gradient(std::uint64_t seed, int rank, std::uint64_t round, std::size_t policy, const State& state, const Gradient& gradient) {
  const Shape& shape = kShapes[policy];
  const std::vector<float> truth = teacher(seed, policy);
  const float* const own = state.weights[policy].data();
  Random random = random_for(seed, static_cast<std::uint64_t>(rank), round, policy);
  std::ranges::fill(gradient.weight, 0.0f), std::ranges::fill(gradient.bias, 0.0f);
  std::vector<float> input(shape.inputs);
  for (std::size_t sample = 0; sample < samples_of(seed, rank, round, policy); ++sample) {
    for (float& value : input) value = random.symmetric(1.0f);
    for (std::size_t row = 0; row < shape.outputs; ++row) {
      const float error = output(own, shape, row, input) - output(truth.data(), shape, row, input);
      for (std::size_t i = 0; i < shape.inputs; ++i) gradient.weight[row * shape.inputs + i] += error * input[i];
      gradient.bias[row] += error;
    }
  }
}

void step(State& state, std::size_t policy, const ConstGradient& mean) {
  std::size_t at = 0;
  for (const std::span<const float> part : {mean.weight, mean.bias})
    for (const float g : part) {
      float& velocity = state.momentum[policy][at];
      velocity = kMomentum * velocity + g;
      state.weights[policy][at++] -= kRate * velocity;
    }
}

}  // namespace policies
