#include "worker.hpp"

#include <chrono>
#include <map>
#include <stdexcept>
#include <vector>

#include "base/clock.hpp"
#include "pattern.hpp"

namespace gradshm::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kProbes = 64;

// An element whose sum is checked after every round; every second one is rewritten before.
struct Probe {
  const Pattern* pattern;
  std::byte* slot;  // of the parameter
  const std::byte* result;
  std::size_t index;      // in the parameter
  std::uint64_t element;  // in the layout
  bool is_rewritten;
};

class Gradients {
 public:
  Gradients(Worker& worker, unsigned rank, unsigned workers);
  void rewrite(std::uint64_t round) const noexcept;
  void check(std::uint64_t round) const;  // throws
  [[nodiscard]] Facts facts() const;

 private:
  void add_parameter(std::size_t index, const gradshm_parameter_t& parameter, std::uint64_t probe_distance);

  Worker& worker_;
  unsigned rank_;
  std::map<int, Pattern> patterns_;
  std::vector<Probe> probes_;
  Facts facts_{};
};

Gradients::Gradients(Worker& worker, unsigned rank, unsigned workers) : worker_(worker), rank_(rank) {
  const gradshm_info_t info = worker.info();
  facts_.parameters = info.parameters;
  facts_.buckets = info.buckets;
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < info.parameters; ++i) elements += worker.parameter(i).numel;
  for (std::size_t i = 0; i < info.parameters; ++i) {
    const gradshm_parameter_t parameter = worker.parameter(i);
    patterns_.try_emplace(parameter.dtype, workers, parameter.dtype);
    add_parameter(i, parameter, elements / kProbes + 1);
  }
}

void Gradients::add_parameter(std::size_t index, const gradshm_parameter_t& parameter, std::uint64_t probe_distance) {
  const Pattern& pattern = patterns_.at(parameter.dtype);
  std::byte* slot = worker_.slot<std::byte>(index).data();
  const std::byte* result = worker_.result<std::byte>(index).data();
  for (std::size_t i = 0; i < parameter.numel; ++i) {
    const std::uint64_t element = facts_.elements + i;
    pattern.store(slot, i, pattern.value(rank_, element, 0));
    if (element % probe_distance != 0) continue;
    probes_.push_back({&pattern, slot, result, i, element, probes_.size() % 2 == 0});
  }
  facts_.elements += parameter.numel;
  facts_.bytes += parameter.bytes;
}

Facts Gradients::facts() const {
  Facts facts = facts_;
  facts.dtype = patterns_.size() == 1 ? patterns_.begin()->first : 0;
  return facts;
}

void Gradients::rewrite(std::uint64_t round) const noexcept {
  for (const Probe& probe : probes_) {
    if (probe.is_rewritten) probe.pattern->store(probe.slot, probe.index, probe.pattern->value(rank_, probe.element, round));
  }
}

void Gradients::check(std::uint64_t round) const {
  for (const Probe& probe : probes_) {
    const unsigned sum = probe.pattern->sum(probe.element, probe.is_rewritten ? round : 0);
    if (probe.pattern->holds(probe.result, probe.index, sum)) continue;
    throw std::runtime_error("wrong sum: element " + std::to_string(probe.element) + " of the layout is not " +
                             std::to_string(sum) + " after round " + std::to_string(round) + " of the benchmark");
  }
}

void run_round(Worker& worker, Stamp& stamp) {
  stamp.commit_ns = core::now_ns();
  const Round round = worker.commit();
  const Outcome outcome = round.wait(60s);
  stamp.seen_ns = core::now_ns();
  if (outcome == Outcome::ok) return;
  throw std::runtime_error("round " + std::to_string(round.number()) + ": " + to_string(outcome) + ": " + gradshm_last_error());
}

}  // namespace

void work(const Job& job, const Layout& layout, unsigned rank, Board& board) {
  auto worker = Worker::attach(job.instance, layout, {.rank = static_cast<int>(rank), .label = "gradshm-bench"});
  const Gradients gradients(worker, rank, job.workers);
  if (rank == 0) board.facts() = gradients.facts();
  board.finish();
  for (unsigned round = 0; round < job.blocks * job.rounds_per_block; ++round) {
    if (round % job.rounds_per_block == 0) board.await_start(rank);
    gradients.rewrite(round + 1);
    board.meet();
    run_round(worker, board.stamp(round, rank));
    gradients.check(round + 1);
    if ((round + 1) % job.rounds_per_block == 0) board.finish();
  }
  board.await_start(rank);  // stays until all are done, so that nobody's leaving is part of a round
}

}  // namespace gradshm::bench
