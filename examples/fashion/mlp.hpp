// The network, 784-256-128-10 with ReLU and softmax cross-entropy, as plain loops.
#pragma once

#include "idx.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fashion {

inline constexpr std::size_t kLayers = 3;
inline constexpr std::array<std::size_t, kLayers + 1> kWidths{kPixels, 256, 128, kClasses};

struct TensorShape {
  const char* name;
  std::size_t rows, columns;  // weights: inputs x outputs; biases: one row
  [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};
inline constexpr std::array<TensorShape, 2 * kLayers> kTensors{{{"fc1.weight", kWidths[0], kWidths[1]},
                                                                {"fc1.bias", 1, kWidths[1]},
                                                                {"fc2.weight", kWidths[1], kWidths[2]},
                                                                {"fc2.bias", 1, kWidths[2]},
                                                                {"fc3.weight", kWidths[2], kWidths[3]},
                                                                {"fc3.bias", 1, kWidths[3]}}};
using Tensors = std::array<std::span<float>, kTensors.size()>;
using ConstTensors = std::array<std::span<const float>, kTensors.size()>;

// Owns one value per weight of the network: the weights, a velocity or a gradient.
class TensorSet {
 public:
  TensorSet();  // zeros
  [[nodiscard]] static TensorSet initial_weights(std::uint64_t seed);

  [[nodiscard]] Tensors tensors() noexcept;
  [[nodiscard]] ConstTensors view() const noexcept;
  [[nodiscard]] std::span<float> values() noexcept { return values_; }
  [[nodiscard]] std::span<const float> values() const noexcept { return values_; }

 private:
  std::vector<float> values_;
};

// Holds the activations of one pass; not for several threads.
class Mlp {
 public:
  using Done = std::function<void(std::size_t tensor)>;

  // Writes the gradient of the loss *summed* over the samples and returns that loss. Goes from the last layer to the first and
  // calls done(tensor) as soon as a tensor's gradient is final; nothing is written to it after that.
  double gradient(const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples, const Tensors& gradient,
                  const Done& done);
  [[nodiscard]] std::size_t count_correct(const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples);

 private:
  void forward(const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples);
  double loss_and_delta(const Dataset& data, std::span<const std::uint32_t> samples);
  void layer_gradient(std::size_t layer, std::size_t samples, const Tensors& gradient) const;
  void delta_below(std::size_t layer, std::size_t samples, const ConstTensors& weights);

  std::array<std::vector<float>, kLayers + 1> activations_;  // samples x width; [0]: the images, [kLayers]: the logits
  std::vector<float> delta_, delta_below_, transposed_;      // delta: loss by the layer's output before ReLU
};

[[nodiscard]] double accuracy(Mlp& mlp, const ConstTensors& weights, const Dataset& data);

}  // namespace fashion
