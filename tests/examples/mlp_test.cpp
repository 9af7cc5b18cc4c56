#include "fashion/mlp.hpp"

#include "fashion/multiply.hpp"
#include "fashion/random.hpp"
#include "made_up_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using namespace fashion;

// The network again, in double, one sample at a time and without any cleverness: what the fast one is checked against.
double slow_loss(const std::vector<double>& weights, const Dataset& data) {
  double loss = 0;
  for (std::size_t sample = 0; sample < data.size(); ++sample) {
    std::vector<double> values(data.images.begin() + static_cast<std::ptrdiff_t>(sample * kPixels),
                               data.images.begin() + static_cast<std::ptrdiff_t>((sample + 1) * kPixels));
    for (double& value : values) value /= 255.0;
    const double* next_weight = weights.data();
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::size_t in = kWidths[layer], out = kWidths[layer + 1];
      std::vector<double> outputs(next_weight + in * out, next_weight + in * out + out);
      for (std::size_t i = 0; i < in; ++i)
        for (std::size_t j = 0; j < out; ++j) outputs[j] += values[i] * next_weight[i * out + j];
      if (layer + 1 < kLayers)
        for (double& output : outputs) output = std::max(output, 0.0);
      values = outputs;
      next_weight += in * out + out;
    }
    double total = 0;
    for (const double value : values) total += std::exp(value);
    loss += std::log(total) - values[data.labels[sample]];
  }
  return loss;
}

// Central difference; the step is small enough to cross no kink of a ReLU in these data.
double slow_derivative(std::vector<double> weights, const Dataset& data, std::size_t index) {
  constexpr double kStep = 1e-6;
  const double middle = weights[index];
  weights[index] = middle + kStep;
  const double above = slow_loss(weights, data);
  weights[index] = middle - kStep;
  return (above - slow_loss(weights, data)) / (2 * kStep);
}

TensorSet gradient_of(const TensorSet& weights, const Dataset& data, double* loss = nullptr) {
  TensorSet gradient;
  Mlp mlp;
  const double sum = mlp.gradient(weights.view(), data, all_samples(data), gradient.tensors(), [](std::size_t) {});
  if (loss != nullptr) *loss = sum;
  return gradient;
}

// Biases that are not zero, so that a mistake in them shows.
TensorSet some_weights() {
  TensorSet weights = TensorSet::initial_weights(3);
  const Tensors tensors = weights.tensors();
  Random random(4);
  for (std::size_t t = 1; t < kTensors.size(); t += 2)
    for (float& bias : tensors[t]) bias = random.symmetric(0.1f);
  return weights;
}

}  // namespace

TEST_CASE("the loss is that of the same network written slowly in double") {
  const Dataset data = made_up_data(5);
  const TensorSet weights = some_weights();
  double loss = 0;
  gradient_of(weights, data, &loss);
  CHECK(loss == doctest::Approx(slow_loss({weights.values().begin(), weights.values().end()}, data)).epsilon(1e-5));
}

TEST_CASE("the gradient is what finite differences in double say, in every tensor") {
  const Dataset data = made_up_data(2);
  const TensorSet weights = some_weights();
  const std::vector<double> exact(weights.values().begin(), weights.values().end());
  const TensorSet gradient = gradient_of(weights, data);
  Random random(11);
  std::size_t offset = 0;
  for (std::size_t t = 0; t < kTensors.size(); ++t) {
    CAPTURE(kTensors[t].name);
    for (int i = 0; i < 8; ++i) {
      const std::size_t index = random.below(static_cast<std::uint32_t>(kTensors[t].size()));
      CAPTURE(index);
      const double difference = gradient.view()[t][index] - slow_derivative(exact, data, offset + index);
      CHECK(std::fabs(difference) < 1e-4);
    }
    offset += kTensors[t].size();
  }
}

TEST_CASE("tensors are done from the last layer to the first, once each, and are not touched after that") {
  const Dataset data = made_up_data(4);
  const TensorSet weights = some_weights();
  TensorSet gradient;
  std::vector<std::size_t> order;
  std::vector<std::vector<float>> when_done(kTensors.size());
  Mlp mlp;
  mlp.gradient(weights.view(), data, all_samples(data), gradient.tensors(), [&](std::size_t t) {
    order.push_back(t);
    when_done[t].assign(gradient.view()[t].begin(), gradient.view()[t].end());
  });
  CHECK(order == std::vector<std::size_t>{5, 4, 3, 2, 1, 0});
  for (std::size_t t = 0; t < kTensors.size(); ++t)
    CHECK(std::equal(when_done[t].begin(), when_done[t].end(), gradient.view()[t].begin()));
}

TEST_CASE("what was in the gradient's memory before does not matter") {
  const Dataset data = made_up_data(4);
  const TensorSet weights = some_weights(), clean = gradient_of(weights, data);
  TensorSet dirty;
  std::fill(dirty.values().begin(), dirty.values().end(), 123.0f);
  Mlp mlp;
  mlp.gradient(weights.view(), data, all_samples(data), dirty.tensors(), [](std::size_t) {});
  CHECK(std::equal(clean.values().begin(), clean.values().end(), dirty.values().begin()));
}

TEST_CASE("the same seed gives the same weights on every machine, another seed others") {
  const TensorSet a = TensorSet::initial_weights(1), b = TensorSet::initial_weights(1), c = TensorSet::initial_weights(2);
  CHECK(std::equal(a.values().begin(), a.values().end(), b.values().begin()));
  CHECK_FALSE(std::equal(a.values().begin(), a.values().end(), c.values().begin()));
  Random random(1);  // SplitMix64 is published with these numbers
  CHECK(random.bits() == 0x910a2dec89025cc1ull);
  CHECK(random.bits() == 0xbeeb8da1658eec67ull);
}

TEST_CASE("initial weights keep to their bounds and biases are zero") {
  const TensorSet set = TensorSet::initial_weights(5);
  const ConstTensors weights = set.view();
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const float limit = std::sqrt(6.0f / static_cast<float>(kWidths[layer]));
    const auto [low, high] = std::minmax_element(weights[2 * layer].begin(), weights[2 * layer].end());
    CHECK(*low >= -limit);
    CHECK(*high <= limit);
    CHECK(*high - *low > 1.9f * limit);
    for (const float bias : weights[2 * layer + 1]) CHECK(bias == 0.0f);
  }
}

TEST_CASE("the product is right for every small shape, and for a transposed factor") {
  for (const std::size_t k : {1, 3, 4, 5, 16, 19, 33})
    for (const std::size_t n : {1, 10, 17}) {
      const std::size_t m = 3;
      std::vector<float> a(m * k), b(k * n), c(m * n, 1.0f), from_transposed(m * n, 1.0f), transposed(m * k);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t l = 0; l < k; ++l) transposed[l * m + i] = a[i * k + l];
      multiply_add(m, n, k, {a.data(), k, 1}, b.data(), c.data());
      multiply_add(m, n, k, {transposed.data(), 1, m}, b.data(), from_transposed.data());
      CHECK(c == from_transposed);
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          float sum = 1;
          for (std::size_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
          CHECK(c[i * n + j] == sum);
        }
    }
}
