#include "elastic.hpp"

#include "../checkpoint.hpp"
#include "progress.hpp"
#include "shared_gradient.hpp"
#include "training.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

namespace fashion {
namespace {

using namespace std::chrono_literals;
using gradshm::Outcome;

// round, weights, velocity: what a newcomer needs. Where a round stands in an epoch does not matter, samples are drawn.
class State {
 public:
  State(const Plan& plan) : weights(TensorSet::initial_weights(plan.seed)), sgd(plan), bytes_(sizeof round + 2 * size()) {}

  void save(const std::string& path) {
    std::memcpy(bytes_.data(), &round, sizeof round);
    std::memcpy(bytes_.data() + sizeof round, weights.values().data(), size());
    std::memcpy(bytes_.data() + sizeof round + size(), sgd.velocity().values().data(), size());
    examples::write_checkpoint(path, bytes_);
  }
  // False: the file is older than this round, and nothing has changed here.
  bool load(const std::string& path, std::uint64_t least) {
    if (examples::checkpoint_round(path) < least) return false;
    if (!examples::read_checkpoint(path, bytes_)) return false;
    std::memcpy(&round, bytes_.data(), sizeof round);
    std::memcpy(weights.values().data(), bytes_.data() + sizeof round, size());
    std::memcpy(sgd.velocity().values().data(), bytes_.data() + sizeof round + size(), size());
    return true;
  }
  // FNV-1a.
  [[nodiscard]] std::string weights_hash() const {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (const std::byte byte : std::as_bytes(weights.values())) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ull;
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
  }

  std::uint64_t round = 0;  // after this one
  TensorSet weights;
  Sgd sgd;

 private:
  [[nodiscard]] std::size_t size() const { return weights.values().size_bytes(); }
  std::vector<std::byte> bytes_;
};

class ElasticTraining {
 public:
  ElasticTraining(const Dataset& data, const Options& options)
      : data_(data), options_(options), state_(options.plan),
        rounds_(options.rounds.value_or(options.epochs * (data.size() / options.plan.batch))),
        last_round_(options.leave_after_round > 0 ? std::min(rounds_, options.leave_after_round) : rounds_),
        progress_(rounds_, options.plan.batch, options.quiet || options.rank != 0) {}

  void run() {
    while (state_.round < last_round_) {
      try {
        take_part();
      } catch (const NotOk& answer) {
        if (!is_eviction(answer.outcome)) throw;
        ++evictions_;
        std::cerr << "train_fashion: worker " + std::to_string(options_.rank) + ": evicted after round " + std::to_string(state_.round) + "; attaching again\n";
      }
    }
  }

  void report(const Dataset& test) {
    Mlp mlp;
    nlohmann::ordered_json line;
    line["rank"] = options_.rank;
    line["first_rounds"] = first_rounds_;
    line["last_round"] = state_.round;
    line["rounds"] = rounds_;
    line["evictions"] = evictions_;
    line["records_checked"] = records_checked_;
    line["bytes_copied"] = bytes_copied_;
    line["weights"] = state_.weights_hash();
    line["test_accuracy"] = accuracy(mlp, state_.weights.view(), test);
    std::cout << line.dump() + "\n" << std::flush;
  }

 private:
  static bool is_eviction(Outcome outcome) {
    return outcome == Outcome::evicted || outcome == Outcome::not_member || outcome == Outcome::round_closed;
  }

  // The server may be between two lives; one that was killed takes an attach that has begun with it; whom we replace may still be dying.
  gradshm::Worker attach() const {
    for (const auto give_up = std::chrono::steady_clock::now() + kPatience;; std::this_thread::sleep_for(50ms)) {
      throw_if_stopped();
      try {
        return gradshm::Worker::attach(options_.instance, make_layout(),
                                       {.rank = static_cast<int>(options_.rank), .wait_for_server = true, .wait_for_admission = false, .timeout = 10s});
      } catch (const gradshm::Error& error) {
        const int code = error.code().value();
        const bool passes = code == GRADSHM_NO_SERVER || code == GRADSHM_DAEMON_LOST || code == GRADSHM_TIMEOUT || code == GRADSHM_RANK_TAKEN;
        if (!passes || std::chrono::steady_clock::now() > give_up) throw;
      }
    }
  }

  // From attach to the end of the training or of this membership.
  void take_part() {
    gradshm::Worker worker = attach();
    const std::optional<std::uint64_t> first = admitted(worker);
    if (!first) return;
    take_up(*first);
    if (state_.round >= last_round_) return;
    first_rounds_.push_back(*first);
    SharedGradient shared(worker);
    while (state_.round < last_round_) train_round(worker, shared);
    bytes_copied_ = worker.info().bytes_copied;
  }

  // nullopt: the server was killed before it came to that.
  static std::optional<std::uint64_t> admitted(gradshm::Worker& worker) {
    try {
      return await_admission(worker);
    } catch (const NotOk& answer) {
      if (answer.outcome != Outcome::daemon_lost) throw;
      return std::nullopt;
    }
  }

  // The state after the round before our first. The others cannot go on without us, unless they evict us or have done all rounds.
  void take_up(std::uint64_t first) {
    if (first == 1) std::filesystem::remove(options_.checkpoint);  // an earlier training's; nobody commits to round 1 before
    const std::uint64_t wanted = std::min<std::uint64_t>(first - 1, rounds_);
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (state_.round < wanted && !state_.load(options_.checkpoint, wanted)) {
      throw_if_stopped();
      if (std::chrono::steady_clock::now() > give_up)
        throw std::runtime_error("nobody wrote the state after round " + std::to_string(wanted) + " to '" + options_.checkpoint + "'");
      std::this_thread::sleep_for(1ms);
    }
    if (state_.round >= first) throw NotOk(Outcome::evicted, "the others went on without this worker");
  }

  void train_round(const gradshm::Worker& worker, SharedGradient& shared) {
    const std::uint64_t round = state_.round + 1;
    const auto samples = drawn_samples(data_.size(), std::max<std::size_t>(options_.plan.batch / options_.plan.workers, 1), options_.plan.seed,
                                       options_.rank, round);
    shared.hand_in(mlp_, state_.weights.view(), data_, samples, round);
    shared.wait_for(round, [&] { save_if_older(); });
    const double loss = shared.mean_loss();
    if (!std::isfinite(loss)) throw std::runtime_error("the loss is not finite after round " + std::to_string(round) + "; a smaller --learning-rate may help");
    state_.sgd.step(shared.mean(), state_.weights.tensors());
    state_.round = round;
    const bool writes = check_record(worker);
    if (writes && (round % options_.checkpoint_every == 0 || round == last_round_ || round == rounds_)) state_.save(options_.checkpoint);
    progress_.round_closed(round, loss);
  }

  // Who should have written the file may be dead, or had no reason to: then a newcomer waits for it, and we for the newcomer.
  void save_if_older() {
    if (state_.round > 0 && examples::checkpoint_round(options_.checkpoint) < state_.round) state_.save(options_.checkpoint);
  }

  // Whether it is for us to write the file: for the lowest rank in the round; for everybody where a new server has no record of it.
  bool check_record(const gradshm::Worker& worker) {
    auto record = gradshm::detail::sized<gradshm_round_t>();
    const int code = gradshm_round(worker.get(), state_.round, &record);
    if (code == GRADSHM_NOT_FOUND) return true;
    if (code != GRADSHM_OK) throw gradshm::Error(code);
    const std::string which = "the record of round " + std::to_string(state_.round);
    if (record.round != state_.round) throw std::runtime_error(which + " is that of round " + std::to_string(record.round));
    unsigned members = 0, contributors = 0;
    int lowest = -1;
    for (int word = 3; word >= 0; --word) {
      if ((record.contributors[word] & ~record.members[word]) != 0) throw std::runtime_error(which + " has contributors that are no members");
      members += static_cast<unsigned>(std::popcount(record.members[word])), contributors += static_cast<unsigned>(std::popcount(record.contributors[word]));
      if (record.contributors[word] != 0) lowest = word * 64 + std::countr_zero(record.contributors[word]);
    }
    const bool has_us = (record.contributors[options_.rank / 64] >> (options_.rank % 64) & 1) != 0;
    if (members != record.member_count || contributors != record.contributor_count || !has_us) throw std::runtime_error(which + " does not count right");
    ++records_checked_;
    return lowest == static_cast<int>(options_.rank);
  }

  const Dataset& data_;
  const Options& options_;
  State state_;
  std::size_t rounds_, last_round_;
  Progress progress_;
  Mlp mlp_;
  std::vector<std::uint64_t> first_rounds_;
  std::size_t evictions_ = 0, records_checked_ = 0;
  std::uint64_t bytes_copied_ = 0;
};

}  // namespace

void train_elastically(const Dataset& data, const Dataset& test, const Options& options) {
  ElasticTraining training(data, options);
  training.run();
  training.report(test);
}

}  // namespace fashion
