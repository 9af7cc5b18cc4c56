// The two policies of two_policies, the learners' made-up data, and the optimizer: all of it functions of seed, rank and round,
// so that a run can be repeated without the learners.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace policies {

inline constexpr int kLearners = 4;
inline constexpr int kWithoutB = 3;  // this learner has no data for policy b
inline constexpr std::size_t kPolicies = 2;

// y = W x + c, fitted to what a hidden teacher says.
struct Shape {
  const char *group, *weight, *bias;
  std::size_t outputs, inputs;
  [[nodiscard]] constexpr std::size_t size() const noexcept { return outputs * (inputs + 1); }  // the bias lies behind the weight
};
inline constexpr std::array<Shape, kPolicies> kShapes{{{"a", "a.weight", "a.bias", 16, 96}, {"b", "b.weight", "b.bias", 8, 200}}};
inline constexpr std::size_t kMostValues = kShapes[0].size() > kShapes[1].size() ? kShapes[0].size() : kShapes[1].size();

// Plain bytes: it is what a checkpoint holds.
struct State {
  std::uint64_t round = 0;  // after this one
  std::array<std::array<float, kMostValues>, kPolicies> weights{}, momentum{};
};

// Of one policy. In a learner they point into its slot and into the shared result.
struct Gradient {
  std::span<float> weight, bias;
};
struct ConstGradient {
  std::span<const float> weight, bias;
};

[[nodiscard]] std::size_t samples_of(std::uint64_t seed, int rank, std::uint64_t round, std::size_t policy);
// *Summed* over the samples that this learner has in this round; writes every element.
void compute_gradient(std::uint64_t seed, int rank, std::uint64_t round, std::size_t policy, const State& state, const Gradient& gradient);
// SGD with momentum, from the mean over all samples.
void step(State& state, std::size_t policy, const ConstGradient& mean);

}  // namespace policies
