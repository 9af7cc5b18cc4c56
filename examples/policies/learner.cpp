#include "learner.hpp"

#include "../checkpoint.hpp"
#include "model.hpp"

#include <gradshm/gradshm.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

namespace policies {
namespace {

using namespace std::chrono_literals;
using gradshm::Outcome;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience = 120s, kSlice = 100ms;

gradshm::Layout make_layout() {
  gradshm::Layout layout;
  for (const Shape& shape : kShapes) {
    const auto outputs = static_cast<std::int64_t>(shape.outputs), inputs = static_cast<std::int64_t>(shape.inputs);
    layout.add(shape.weight, gradshm::DType::f32, {outputs, inputs}, {.group = shape.group});
    layout.add(shape.bias, gradshm::DType::f32, {outputs}, {.group = shape.group});
  }
  return layout;
}

class Learner {
 public:
  explicit Learner(const LearnerOptions& options)
      : options_(options), checkpoint_(options.directory + kCheckpoint),
        worker_(gradshm::Worker::attach(options.instance, make_layout(), {.rank = options.rank})) {
    for (std::size_t policy = 0; policy < kPolicies; ++policy) {
      const Shape& shape = kShapes[policy];
      groups_[policy] = worker_.find_group(shape.group);
      slots_[policy] = {worker_.slot<float>(shape.weight), worker_.slot<float>(shape.bias)};
      means_[policy] = {worker_.result<float>(shape.weight), worker_.result<float>(shape.bias)};
    }
    if (options.rank == 0) records_.reset(std::fopen((options.directory + kRecords).c_str(), "we"));
  }

  void run() {
    take_up(worker_.wait_admitted(kPatience));
    while (!is_finished()) {
      const std::uint64_t round = state_.round + 1;
      hand_in(round);
      wait_for(round);
      for (std::size_t policy = 0; policy < kPolicies; ++policy) step(state_, policy, means_[policy]);
      state_.round = round;
      note();
    }
    examples::write_checkpoint(options_.directory + kFinal + std::to_string(options_.rank), bytes());
  }

 private:
  [[nodiscard]] std::span<const std::byte> bytes() const { return std::as_bytes(std::span(&state_, 1)); }

  // The state after the round before our first. No other round can close meanwhile: they wait for us.
  void take_up(std::uint64_t first_round) {
    const auto give_up = Clock::now() + kPatience;
    while (state_.round + 1 != first_round) {
      if (Clock::now() > give_up) throw std::runtime_error("nobody wrote the state after round " + std::to_string(first_round - 1));
      if (!examples::read_checkpoint(checkpoint_, std::as_writable_bytes(std::span(&state_, 1))) || state_.round + 1 < first_round)
        std::this_thread::sleep_for(1ms);
      if (state_.round >= first_round) throw std::runtime_error("the others went on without this learner");
    }
  }

  // The same answer in every learner, the new one too: it is asked of the server's records.
  [[nodiscard]] bool is_finished() const {
    if (state_.round < std::max(options_.rounds, kRoundsTogether)) return false;
    for (std::uint64_t back = 0; back < kRoundsTogether; ++back)
      if (worker_.round(state_.round - back).member_count != kLearners) return false;
    return true;
  }

  // Each learner visits the policies in an order of its own, which changes from round to round.
  void hand_in(std::uint64_t round) {
    die_if_told(round, Place::before_commits);
    for (std::size_t i = 0; i < kPolicies; ++i) {
      const std::size_t policy = (static_cast<std::size_t>(options_.rank) + round + i) % kPolicies;
      const std::size_t samples = samples_of(options_.seed, options_.rank, round, policy);
      if (samples > 0) compute_gradient(options_.seed, options_.rank, round, policy, state_, slots_[policy]);
      const gradshm::CommitOptions commit{.weight = static_cast<double>(samples),
                                          .presence = samples > 0 ? gradshm::Presence::all : gradshm::Presence::none};
      if (const Outcome outcome = worker_.commit_group(groups_[policy], commit).status(); outcome != Outcome::ok)
        throw std::runtime_error("commit: " + std::string(gradshm::to_string(outcome)));
      if (i == 0) die_if_told(round, Place::between_commits);
    }
    die_if_told(round, Place::after_commits);
  }

  void die_if_told(std::uint64_t round, Place place) const {
    if (round == options_.die_in_round && place == options_.die_at) raise(SIGKILL);
  }

  // Who should have written the checkpoint may have died before he did. Then a newcomer waits for the file, and all wait for the newcomer.
  void wait_for(std::uint64_t round) {
    for (const auto give_up = Clock::now() + kPatience; Clock::now() < give_up;) {
      const Outcome outcome = worker_.wait(round, kSlice);
      if (outcome == Outcome::ok) return;
      if (outcome != Outcome::timeout) throw std::runtime_error("round " + std::to_string(round) + ": " + gradshm::to_string(outcome));
      if (state_.round > 0 && examples::checkpoint_round(checkpoint_) < state_.round) examples::write_checkpoint(checkpoint_, bytes());
    }
    throw std::runtime_error("round " + std::to_string(round) + " did not close");
  }

  void note() {
    const gradshm_round_t round = worker_.round(state_.round);
    if (std::countr_zero(round.contributors[0]) == options_.rank) examples::write_checkpoint(checkpoint_, bytes());
    if (!records_) return;
    std::fprintf(records_.get(), "%llu %llu %llu", static_cast<unsigned long long>(round.round),
                 static_cast<unsigned long long>(round.members[0]), static_cast<unsigned long long>(round.contributors[0]));
    for (const Shape& shape : kShapes) {
      const auto info = worker_.result_info(shape.weight);
      std::fprintf(records_.get(), " %u %.17g", info.count, info.weight_sum);
    }
    std::fputc('\n', records_.get());
  }

  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  LearnerOptions options_;
  std::string checkpoint_;
  gradshm::Worker worker_;
  State state_;
  std::array<std::size_t, kPolicies> groups_{};
  std::array<Gradient, kPolicies> slots_;
  std::array<ConstGradient, kPolicies> means_;
  std::unique_ptr<std::FILE, Close> records_;
};

}  // namespace

void learn(const LearnerOptions& options) { Learner(options).run(); }

}  // namespace policies
