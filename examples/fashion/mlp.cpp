#include "mlp.hpp"

#include "multiply.hpp"
#include "random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fashion {
namespace {

template <class Span, class Values>
std::array<Span, kTensors.size()> split(Values& values) {
  std::array<Span, kTensors.size()> tensors;
  std::size_t offset = 0;
  for (std::size_t t = 0; t < kTensors.size(); ++t) {
    tensors[t] = Span(values).subspan(offset, kTensors[t].size());
    offset += kTensors[t].size();
  }
  return tensors;
}

void gather(const Dataset& data, std::span<const std::uint32_t> samples, float* images) {
  for (const std::uint32_t sample : samples) {
    const std::uint8_t* pixels = data.images.data() + sample * kPixels;
    for (std::size_t i = 0; i < kPixels; ++i) images[i] = static_cast<float>(pixels[i]) * (1.0f / 255.0f);
    images += kPixels;
  }
}

// Turns the logits of one sample into softmax - one-hot, the gradient by the logits, and returns the loss.
double softmax_loss(const float* logits, std::size_t label, float* delta) {
  const float highest = *std::max_element(logits, logits + kClasses);
  float total = 0;
  for (std::size_t c = 0; c < kClasses; ++c) total += delta[c] = std::exp(logits[c] - highest);
  for (std::size_t c = 0; c < kClasses; ++c) delta[c] /= total;
  delta[label] -= 1.0f;
  return static_cast<double>(std::log(total) - (logits[label] - highest));
}

}  // namespace

TensorSet::TensorSet()
    : values_(std::accumulate(kTensors.begin(), kTensors.end(), std::size_t{0}, [](auto sum, const auto& t) { return sum + t.size(); })) {}

// He initialisation, from a uniform distribution: bounds of sqrt(6 / inputs). Biases start at zero.
TensorSet TensorSet::initial_weights(std::uint64_t seed) {
  TensorSet set;
  Random random(seed);
  const Tensors tensors = set.tensors();
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const float limit = std::sqrt(6.0f / static_cast<float>(kWidths[layer]));
    for (float& weight : tensors[2 * layer]) weight = random.symmetric(limit);
  }
  return set;
}

Tensors TensorSet::tensors() noexcept { return split<std::span<float>>(values_); }
ConstTensors TensorSet::view() const noexcept { return split<std::span<const float>>(values_); }

void Mlp::forward(const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples) {
  const std::size_t n = samples.size();
  for (std::size_t i = 0; i <= kLayers; ++i) activations_[i].resize(n * kWidths[i]);
  gather(data, samples, activations_[0].data());
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const std::size_t in = kWidths[layer], out = kWidths[layer + 1];
    std::vector<float>& next = activations_[layer + 1];
    const std::span<const float> bias = weights[2 * layer + 1];
    for (std::size_t i = 0; i < n; ++i) std::copy(bias.begin(), bias.end(), next.begin() + static_cast<std::ptrdiff_t>(i * out));
    multiply_add(n, out, in, {activations_[layer].data(), in, 1}, weights[2 * layer].data(), next.data());
    if (layer + 1 < kLayers)
      for (float& value : next) value = value > 0.0f ? value : 0.0f;
  }
}

double Mlp::loss_and_delta(const Dataset& data, std::span<const std::uint32_t> samples) {
  delta_.resize(samples.size() * kClasses);
  double loss = 0;
  for (std::size_t i = 0; i < samples.size(); ++i)
    loss += softmax_loss(activations_[kLayers].data() + i * kClasses, data.labels[samples[i]], delta_.data() + i * kClasses);
  return loss;
}

void Mlp::layer_gradient(std::size_t layer, std::size_t samples, const Tensors& gradient) const {
  const std::size_t in = kWidths[layer], out = kWidths[layer + 1];
  const std::span<float> weight = gradient[2 * layer], bias = gradient[2 * layer + 1];
  std::fill(weight.begin(), weight.end(), 0.0f);
  multiply_add(in, out, samples, {activations_[layer].data(), 1, in}, delta_.data(), weight.data());
  std::fill(bias.begin(), bias.end(), 0.0f);
  for (std::size_t i = 0; i < samples; ++i)
    for (std::size_t j = 0; j < out; ++j) bias[j] += delta_[i * out + j];
}

void Mlp::delta_below(std::size_t layer, std::size_t samples, const ConstTensors& weights) {
  const std::size_t in = kWidths[layer], out = kWidths[layer + 1];
  transposed_.resize(in * out);
  for (std::size_t i = 0; i < in; ++i)
    for (std::size_t j = 0; j < out; ++j) transposed_[j * in + i] = weights[2 * layer][i * out + j];
  delta_below_.assign(samples * in, 0.0f);
  multiply_add(samples, in, out, {delta_.data(), out, 1}, transposed_.data(), delta_below_.data());
  for (std::size_t i = 0; i < delta_below_.size(); ++i)
    if (activations_[layer][i] <= 0.0f) delta_below_[i] = 0.0f;
  delta_.swap(delta_below_);
}

double Mlp::gradient(const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples, const Tensors& gradient,
                     const Done& done) {
  forward(weights, data, samples);
  const double loss = loss_and_delta(data, samples);
  for (std::size_t layer = kLayers; layer-- > 0;) {
    layer_gradient(layer, samples.size(), gradient);
    done(2 * layer + 1);
    done(2 * layer);
    if (layer > 0) delta_below(layer, samples.size(), weights);
  }
  return loss;
}

std::size_t Mlp::count_correct(const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples) {
  forward(weights, data, samples);
  std::size_t correct = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const float* logits = activations_[kLayers].data() + i * kClasses;
    correct += static_cast<std::size_t>(std::max_element(logits, logits + kClasses) - logits) == data.labels[samples[i]];
  }
  return correct;
}

double accuracy(Mlp& mlp, const ConstTensors& weights, const Dataset& data) {
  std::vector<std::uint32_t> all(data.size());
  std::iota(all.begin(), all.end(), 0u);
  std::size_t correct = 0;
  for (std::size_t begin = 0; begin < all.size(); begin += 256)
    correct += mlp.count_correct(weights, data, std::span(all).subspan(begin, std::min<std::size_t>(256, all.size() - begin)));
  return static_cast<double>(correct) / static_cast<double>(data.size());
}

}  // namespace fashion
