#include "options.hpp"

#include <gradshm/gradshm.h>

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace fashion {
namespace {

constexpr int kMaxRounds = 100'000'000;  // far beyond any use; keeps products of sizes in range
constexpr const char* kExamples = R"(Examples:
  gradshm run -n 4 -- train_fashion             4 workers, 8 epochs
  gradshm run -n 3 -- train_fashion --rounds 200
  gradshmd --name mine & train_fashion --instance mine
                                                one worker, a server started by hand

Worker 0 prints one line of JSON at the end; with --checkpoint every worker does. There GRADSHM_WORLD_SIZE only says into how many parts
a batch is cut; each worker draws its part at random, a newcomer or one that was evicted goes on from FILE, and all end with the same weights. Exit code: 0 done, 1 failed (a sentence says why), 2 wrong usage,
128 + signal if interrupted.)";

std::optional<std::size_t> environment_number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || end != view.data() + view.size())
    throw std::runtime_error("the environment says " + std::string(name) + "='" + text + "', which is not a number; `gradshm run` sets it");
  return value;
}

void read_environment(Options& options) {
  const auto rank = environment_number("GRADSHM_RANK"), workers = environment_number("GRADSHM_WORLD_SIZE");
  options.rank = rank.value_or(0);
  options.plan.workers = workers.value_or(1);
  if (options.rank >= options.plan.workers || options.plan.workers > GRADSHM_MAX_WORKERS)
    throw std::runtime_error("the environment says GRADSHM_RANK " + std::to_string(options.rank) + " of GRADSHM_WORLD_SIZE " +
                             std::to_string(options.plan.workers) + "; ranks go from 0 to the world size - 1, at most 255");
}

// CLI11's own checks put their description before every option's in --help, and doubles in full length into errors.
CLI::Validator in_range(int lowest, int highest) { return CLI::Range(lowest, highest).description(""); }
CLI::Validator number_at_least(double lowest) {
  return CLI::Validator([lowest](std::string& text) {
    double value = 0;
    const bool fits = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= lowest;
    return fits ? std::string() : "'" + text + "' is not a number, or too small";
  }, "");
}

void add_options(CLI::App& app, Options& options) {
  app.set_version_flag("--version", std::string("train_fashion of gradshm ") + gradshm_version());
  const auto rounds = in_range(1, kMaxRounds);
  app.add_option("--epochs", options.epochs, "passes over the 60,000 training images")->check(rounds)->capture_default_str();
  app.add_option("--rounds", options.rounds, "stop after this many rounds, whatever --epochs says")->check(rounds);
  app.add_option("--seed", options.plan.seed, "of the initial weights and of the shuffling")->check(number_at_least(0))->capture_default_str();
  app.add_option("--data", options.data_directory, "directory of the four IDX files")->capture_default_str();
  app.add_option("--batch", options.plan.batch, "samples of a round, over all workers")->check(in_range(1, 60'000))->capture_default_str();
  app.add_option("--learning-rate", options.plan.learning_rate, "of SGD with momentum 0.9")->check(number_at_least(1e-9))->capture_default_str();
  app.add_option("--check-rounds", options.check_rounds, "rounds that worker 0 repeats alone at the end, to compare the weights; 0: none")
      ->check(in_range(0, kMaxRounds))
      ->capture_default_str();
  auto* checkpoint = app.add_option("--checkpoint", options.checkpoint, "file for the state after each round: workers may come, be killed and leave meanwhile");
  app.add_option("--checkpoint-every", options.checkpoint_every, "rounds")->check(rounds)->needs(checkpoint)->capture_default_str();
  app.add_option("--leave-after-round", options.leave_after_round, "this worker leaves then")->check(rounds)->needs(checkpoint);
  app.add_option("--instance", options.instance, "server to attach to; default: $GRADSHM_INSTANCE, else 'default'");
  app.add_flag("--quiet", options.quiet, "no progress on stderr");
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  ParsedOptions parsed;
  CLI::App app("Trains a small network on Fashion-MNIST; the workers' gradients meet in a gradshm server.", "train_fashion");
  app.footer(kExamples);
  add_options(app, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
    return parsed;
  }
  read_environment(parsed.options);
  return parsed;
}

}  // namespace fashion
