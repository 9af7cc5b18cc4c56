// gradshm-bench: how fast a round is, and how far from what the memory allows.
#include <gradshm/gradshm.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

#include "allreduce.hpp"
#include "report.hpp"

namespace {

using namespace gradshm::bench;

constexpr const char* kExamples = R"(Examples:
  gradshm-bench allreduce --workers 4 --layout tests/data/params/resnet34.tsv
  gradshm-bench allreduce --workers 2 --numel 1024 --rounds 1000
  gradshm-bench allreduce --workers 4 --numel 21797672 --dtype bf16 --json

Starts a gradshmd and the workers, and cleans up. Every round, all workers check sums; a wrong one ends the run.

Exit codes: 0 done, 1 bad options, a wrong sum, or another error.)";

void add_allreduce(CLI::App& app, AllreduceOptions& options, bool& as_json) {
  CLI::App* command = app.add_subcommand("allreduce", "From the round's last commit until every worker sees the result");
  command->add_option("--workers", options.workers, "Worker processes")->required()->check(CLI::Range(1, 256));
  auto* source = command->add_option_group("gradients", "What is summed: one of these")->require_option(1);
  source->add_option("--layout", options.layout_path, "Parameters from a TSV file, or the header of a .safetensors file")
      ->check(CLI::ExistingFile);
  auto* numel = source->add_option("--numel", options.numel, "One parameter of that many elements")->check(CLI::PositiveNumber);
  command->add_option("--dtype", options.dtype, "Of that parameter")
      ->check(CLI::IsMember({"f32", "f64", "f16", "bf16"}))
      ->needs(numel)
      ->capture_default_str();
  command->add_option("--rounds", options.rounds, "Measured rounds, rounded up to whole blocks of 5")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command->add_option("--bucket-bytes", options.bucket_bytes, "As gradshmd has it")->check(CLI::PositiveNumber);
  command->add_option("--reducer-threads", options.reducer_threads, "As gradshmd has it")->check(CLI::Range(1, 1024));
  command->add_option("--floor-threads", options.floor_threads, "Of the memory floor (default: one per CPU)")->check(CLI::Range(1, 1024));
  command->add_option("--daemon", options.daemon, "The gradshmd to start (default: the one beside this program, else from PATH)");
  command->add_flag("--json", as_json, "One line of JSON");
}

int run(const AllreduceOptions& options, bool as_json) {
  const AllreduceResult result = run_allreduce(options);
  const std::string text = as_json ? json_of(options, result) : table_of(options, result);
  return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures gradshm beside the memory floor, alternating in one run.", "gradshm-bench");
  app.set_version_flag("--version", std::string("gradshm-bench ") + gradshm_version());
  app.footer(kExamples);
  app.require_subcommand(1);
  AllreduceOptions options;
  bool as_json = false;
  add_allreduce(app, options, as_json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;  // CLI11's own codes are above 100
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, [](int) { interrupted = 1; });
  try {
    return run(options, as_json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradshm-bench: %s\n", error.what());
    return 1;
  }
}
