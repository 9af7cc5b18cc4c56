#include "shared_gradient.hpp"

#include <cmath>

namespace fashion {

using gradshm::Outcome;

namespace {

constexpr const char* kLossName = "demo.loss";
constexpr const char* kCopiedName = "demo.bytes_copied";

std::string explain(Outcome outcome, const std::string& what) {
  switch (outcome) {
    case Outcome::empty: return what + " closed without a gradient from anybody";
    case Outcome::timeout: return what + " did not come about within 2 minutes; `gradshm-top` shows who is late";
    case Outcome::evicted: return what + ": the server evicted this worker; its log says why";
    case Outcome::daemon_lost: return what + ": the server has gone; start the training again";
    default: break;
  }
  const std::string sentence = gradshm_last_error();
  return what + ": " + (sentence.empty() ? gradshm::to_string(outcome) : sentence);
}

}  // namespace

void require_ok(Outcome outcome, const std::string& what) {
  if (outcome != Outcome::ok) throw NotOk(outcome, explain(outcome, what));
}

gradshm::Layout make_layout() {
  gradshm::Layout layout;
  for (const TensorShape& tensor : kTensors) {
    const auto rows = static_cast<std::int64_t>(tensor.rows), columns = static_cast<std::int64_t>(tensor.columns);
    if (rows == 1)
      layout.add(tensor.name, gradshm::DType::f32, {columns});
    else
      layout.add(tensor.name, gradshm::DType::f32, {rows, columns});
  }
  layout.add(kLossName, gradshm::DType::f64, {1}).add(kCopiedName, gradshm::DType::f64, {1});
  return layout;
}

std::uint64_t await_admission(gradshm::Worker& worker) {
  if (worker.info().op != GRADSHM_MEAN) throw std::runtime_error("this server does not average gradients; start one with --op mean");
  std::uint64_t round = 0;
  const auto admitted = [&](auto timeout) {
    return static_cast<Outcome>(gradshm_wait_admitted(worker.get(), std::chrono::nanoseconds(timeout).count(), &round));
  };
  require_ok(wait_in_slices(admitted, [] {}), "the admission to a round");
  return round;
}

SharedGradient::SharedGradient(gradshm::Worker& worker) : worker_(worker), loss_(worker.find(kLossName)), copied_(worker.find(kCopiedName)) {
  for (std::size_t t = 0; t < kTensors.size(); ++t) {
    index_[t] = worker.find(kTensors[t].name);
    slots_[t] = worker.slot<float>(index_[t]);
    results_[t] = worker.result<float>(index_[t]);
  }
}

std::uint64_t SharedGradient::hand_in(Mlp& mlp, const ConstTensors& weights, const Dataset& data, std::span<const std::uint32_t> samples,
                                      std::uint64_t round) {
  const gradshm::CommitOptions commit{.weight = static_cast<double>(samples.size()), .round = round};
  const double loss = mlp.gradient(weights, data, samples, slots_, [&](std::size_t t) {
    require_ok(worker_.commit_parameter(index_[t], commit).status(), std::string("the commit of ") + kTensors[t].name);
  });
  worker_.slot<double>(loss_)[0] = loss;
  worker_.slot<double>(copied_)[0] = static_cast<double>(worker_.info().bytes_copied);
  const gradshm::Round committed = worker_.commit(commit);  // whatever is not committed yet
  require_ok(committed.status(), "round " + std::to_string(committed.number()));
  return committed.number();
}

std::int64_t SharedGradient::bytes_copied() const {
  return std::llround(worker_.result<double>(copied_)[0] * worker_.result_info(copied_).weight_sum);
}

}  // namespace fashion
