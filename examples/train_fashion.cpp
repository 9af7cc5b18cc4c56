// Several processes train one network on Fashion-MNIST; their gradients meet in gradshm. Run it with
//   gradshm run -n 4 -- train_fashion
// Every worker computes the gradient of its shard of each batch straight into its slot, last layer first, commits what is done
// while it computes the rest, and takes the mean out of the shared result. Nobody sends gradients, nobody copies them.
//   gradshm run -n 4 -- train_fashion --checkpoint state
// lets workers come, be killed and leave meanwhile: fashion/elastic.hpp.
#include "fashion/elastic.hpp"
#include "fashion/options.hpp"
#include "fashion/progress.hpp"
#include "fashion/shared_gradient.hpp"
#include "fashion/training.hpp"

#include <gradshm/gradshm.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

namespace {

using namespace fashion;
using Clock = std::chrono::steady_clock;

gradshm::Worker attach(const Options& options) {
  auto worker = gradshm::Worker::attach(options.instance, make_layout(),
                                        {.rank = static_cast<int>(options.rank), .wait_for_admission = false});
  await_admission(worker);
  return worker;
}

struct Trained {
  TensorSet weights, weights_to_check;  // after the last round; after the first check_rounds rounds
  std::size_t rounds = 0;
  double seconds = 0;
  std::int64_t bytes_copied = 0;
};

// Others than the expected workers would shift the mean; a worker that dies on the way is left out, and the rest goes on.
std::size_t check_contributors(std::size_t contributors, std::size_t before, const Options& options, std::size_t round) {
  const std::size_t expected = options.plan.workers;
  if (contributors > expected || (round == 1 && contributors != expected))
    throw std::runtime_error("round " + std::to_string(round) + " was made by " + std::to_string(contributors) + " instead of " +
                             std::to_string(expected) + " workers; each training needs a server of its own, started with --expect " +
                             std::to_string(expected) + " (`gradshm run` does that)");
  if (contributors < before && options.rank == 0)
    std::cerr << "\ntrain_fashion: from round " << round << " on, only " << contributors << " of " << expected << " workers take part\n";
  return contributors;
}

void require_finite(double loss, std::size_t round) {
  if (std::isfinite(loss)) return;
  throw std::runtime_error("the loss is not finite after round " + std::to_string(round) + "; a smaller --learning-rate may help");
}

Trained train(gradshm::Worker& worker, const Dataset& data, const Options& options) {
  Trained run{.weights = TensorSet::initial_weights(options.plan.seed), .weights_to_check = {}};
  SharedGradient shared(worker);
  BatchOrder order(data.size(), options.plan.batch, options.plan.seed);
  run.rounds = options.rounds.value_or(options.epochs * order.rounds_per_epoch());
  Sgd sgd(options.plan);
  Mlp mlp;
  Progress progress(run.rounds, options.plan.batch, options.quiet || options.rank != 0);
  const auto start = Clock::now();
  for (std::size_t round = 1, contributors = options.plan.workers; round <= run.rounds; ++round) {
    const auto samples = shard(order.batch(round - 1), options.rank, options.plan.workers);
    shared.wait_for(shared.hand_in(mlp, run.weights.view(), data, samples), [] {});
    contributors = check_contributors(shared.contributors(), contributors, options, round);
    const double loss = shared.mean_loss();
    require_finite(loss, round);
    sgd.step(shared.mean(), run.weights.tensors());
    if (round == std::min(options.check_rounds, run.rounds)) run.weights_to_check = run.weights;
    progress.round_closed(round, loss);
  }
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  run.bytes_copied = shared.bytes_copied();
  return run;
}

// null where it was not asked for.
nlohmann::ordered_json difference_to_serial_run(const Trained& run, const Dataset& data, const Options& options) {
  if (options.check_rounds == 0) return nullptr;
  const std::size_t rounds = std::min(options.check_rounds, run.rounds);
  if (!options.quiet) std::cerr << "train_fashion: repeating the first " << rounds << " rounds in one process, to compare the weights\n";
  const TensorSet serial = train_serially(data, options.plan, rounds, throw_if_stopped);
  return max_abs_difference(run.weights_to_check.values(), serial.values());
}

void report(const Trained& run, const Dataset& data, const Dataset& test, const Options& options) {
  Mlp mlp;
  nlohmann::ordered_json line;
  line["workers"] = options.plan.workers;
  line["rounds"] = run.rounds;
  line["seconds"] = run.seconds;
  line["samples_per_second"] = static_cast<double>(run.rounds * options.plan.batch) / run.seconds;
  line["test_accuracy"] = accuracy(mlp, run.weights.view(), test);
  line["bytes_copied"] = run.bytes_copied;
  line["max_abs_difference"] = difference_to_serial_run(run, data, options);
  std::cout << line.dump() << std::endl;
}

void run_worker(const Options& options) {
  if (!std::filesystem::is_directory(options.data_directory))
    throw std::runtime_error("there is no directory '" + options.data_directory +
                             "'; install the Debian package dataset-fashion-mnist (tools/setup does) or say where with --data");
  const Dataset data = load_dataset(options.data_directory, "train");
  const bool is_elastic = !options.checkpoint.empty();
  const Dataset test = options.rank == 0 || is_elastic ? load_dataset(options.data_directory, "t10k") : Dataset{};
  if (options.plan.batch < options.plan.workers || options.plan.batch > data.size())
    throw std::runtime_error("--batch " + std::to_string(options.plan.batch) + " must be at least the number of workers (" +
                             std::to_string(options.plan.workers) + ") and at most the number of images");
  if (is_elastic) return train_elastically(data, test, options);
  const Trained run = [&] {
    gradshm::Worker worker = attach(options);
    return train(worker, data, options);
  }();  // has left the server: what follows needs it no more
  if (options.rank == 0) report(run, data, test, options);
}

int run_and_explain(const Options& options) {
  const std::string who = "train_fashion: worker " + std::to_string(options.rank) + ": ";
  try {
    run_worker(options);
    return std::cout ? 0 : 1;
  } catch (const Interrupted&) {
    if (!options.quiet && options.rank == 0) std::cerr << "train_fashion: interrupted; the workers have left the server\n";
    return 128 + stop_signal();
  } catch (const std::exception& error) {
    std::cerr << who + error.what() + '\n';  // in one piece: the others complain at the same time
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const ParsedOptions parsed = parse_options(argc, argv);
    if (parsed.exit_code) return *parsed.exit_code;
    catch_stop_signals();
    return run_and_explain(parsed.options);
  } catch (const std::exception& error) {
    std::cerr << "train_fashion: " << error.what() << '\n';
    return 1;
  }
}
