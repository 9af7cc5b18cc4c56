// gradshm run: a server and its workers, from start to clean-up.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <system_error>

#include "cli.hpp"
#include "cli_server.hpp"
#include "cli_workers.hpp"
#include "memory/rundir.hpp"
#include "option_values.hpp"

namespace gradshm::tools {
namespace {

constexpr const char* kFooter = R"(
Starts gradshmd (the one beside this program, else in PATH, or $GRADSHM_DAEMON), then N copies of CMD with
GRADSHM_DIR, GRADSHM_INSTANCE, GRADSHM_RANK (0 to N-1) and GRADSHM_WORLD_SIZE set, waits for all of them and
stops the server. Rank 0 reads stdin, the others /dev/null. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are
passed on; a second SIGINT kills the workers that are still there 5 s later. If this program is killed, workers
and server get SIGTERM; a server started with --embedded dies with it, and the next one of its name tidies up. If
the server is killed, the command that starts a new one for the workers is printed. A worker that fails is named at
once. If one fails before round 1 has opened, and too few are left to open it, the others get SIGTERM (and SIGKILL
5 s later): they would wait for ever.

Examples:
  gradshm run -n 4 -- ./train
  gradshm run -n 2 --pin --name job7 --layout resnet34.tsv -- ./train --epochs 3

Exit codes: 0 all workers returned 0; else the code of the worker that failed first (128 + signal if one ended it);
1 bad options; 125 the server could not be started; 127 CMD cannot be executed.)";

struct RunArguments {
  int workers = 1, expect = 0;
  std::string name;
  bool pin = false, verbose = false, embedded = false;
  std::vector<std::string> groups;
  std::vector<std::pair<const char*, std::string>> passed_on;  // options of gradshmd; empty = not given
};

struct PassedOn {
  const char* option;
  const char* help;
  CLI::Validator check;  // as gradshmd has it
};

std::vector<PassedOn> passed_on() {
  return {{"--layout", "TSV or safetensors file (default: what the first worker registers)", {}},
          {"--op", "sum, mean or weighted-mean", CLI::IsMember({"sum", "mean", "weighted-mean"})},
          {"--bucket-bytes", "Bytes of a bucket", CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40)},
          {"--reducer-threads", "Threads that sum; 0 = all CPUs", CLI::Range(0, 1024)},
          {"--max-workers", "Workers that may be attached at once", CLI::Range(1, 256)},
          {"--round-deadline", "Evict who is this late (2, 500ms, 1min); default: never", seconds_up_to(kMostSeconds)},
          {"--rejoin-timeout", "How long workers look for a new server after a kill; 0 = not at all; default: 30 s", seconds_up_to(kMostSeconds)},
          {"--memory-budget", "Most bytes (64MB, 2GiB) of all slots; default: 2 * max-workers slots", bytes()},
          {"--spin-us", "How long the server looks for work before it sleeps, in microseconds; default: 50", CLI::Range(0, 1'000'000)},
          {"--drain-s", "How long the server's stop waits for the open round, in seconds; default: 5", seconds_up_to(kMostDrainSeconds)},
          {"--socket-group", "Name or number of a group whose members may attach too", {}}};
}

void declare(CLI::App& app, RunArguments& arguments) {
  app.add_option("-n,--workers", arguments.workers, "How many workers")->required()->check(CLI::Range(1, 256));
  app.add_option("--name", arguments.name, "Name of the instance (default run-<pid>)");
  app.add_flag("--pin", arguments.pin, "Worker r runs on the r-th of the allowed CPUs only, and so on in a circle");
  app.add_flag("--embedded", arguments.embedded, "The server runs in this process instead of in a gradshmd");
  app.add_flag("-v,--verbose", arguments.verbose, "The server's log, and a line a worker even if all is well");
  app.add_option("--expect", arguments.expect, "Ready workers that open round 1 (default: N)")->check(CLI::Range(1, 256));
  app.add_option("--group", arguments.groups, "Name prefixes of parameters that are weighted together, a group each");
  const std::vector<PassedOn> options = passed_on();
  arguments.passed_on.reserve(options.size());  // CLI11 keeps references to the values
  for (const auto& [option, help, check] : options) app.add_option(option, arguments.passed_on.emplace_back(option, "").second, help)->transform(check);
}

int expected(const RunArguments& arguments) { return arguments.expect > 0 ? arguments.expect : arguments.workers; }

std::vector<std::string> server_options(const RunArguments& arguments, const std::string& instance) {
  std::vector<std::string> options{"--name=" + instance, "--expect=" + std::to_string(expected(arguments))};
  for (const auto& [option, value] : arguments.passed_on)
    if (!value.empty()) options.push_back(std::string(option) + "=" + value);
  for (const std::string& group : arguments.groups) options.push_back("--group=" + group);
  return options;
}

std::unique_ptr<RunServer> start_server(const RunArguments& arguments, const std::string& instance, const Signals& signals) {
  std::vector<std::string> options = server_options(arguments, instance);
  if (arguments.embedded) return std::make_unique<EmbeddedServer>(instance, options, arguments.verbose);
  if (!arguments.verbose) options.emplace_back("--log-level=warning");
  return std::make_unique<ServerProcess>(instance, options, signals);
}

void start_workers(Workers& workers, const RunArguments& arguments, const std::string& instance, const std::vector<std::string>& words) {
  const std::vector<int> cpus = arguments.pin ? allowed_cpus() : std::vector<int>{};
  for (int rank = 0; rank < arguments.workers; ++rank) {
    Command command{words, {}, rank == 0, false, std::nullopt};
    command.environment = {"GRADSHM_DIR=" + core::run_directory(), "GRADSHM_INSTANCE=" + instance, "GRADSHM_RANK=" + std::to_string(rank),
                           "GRADSHM_WORLD_SIZE=" + std::to_string(arguments.workers)};
    if (!cpus.empty()) command.cpu = cpus[static_cast<std::size_t>(rank) % cpus.size()];
    workers.add(command);
  }
}

int run(const RunArguments& arguments, const std::vector<std::string>& words) {
  const std::string instance = arguments.name.empty() ? "run-" + std::to_string(getpid()) : arguments.name;
  core::check_instance_name(instance);
  const Signals signals;
  const std::unique_ptr<RunServer> server = start_server(arguments, instance, signals);
  Workers workers;
  start_workers(workers, arguments, instance, words);
  workers.wait(signals, *server, expected(arguments));
  if (workers.exit_code() != 0 || arguments.verbose) workers.report();
  return workers.exit_code();
}

int complain(const std::string& sentence, int code) {
  std::fprintf(stderr, "gradshm run: %s\n", sentence.c_str());
  return code;
}

int run_guarded(const RunArguments& arguments, const Invocation& invocation, const std::vector<std::string>& unexpected) {
  if (!unexpected.empty()) return complain("'" + unexpected.front() + "' is no option; the command goes behind a --, as in: gradshm run -n 4 -- ./train", kUsage);
  if (invocation.worker_command.empty()) return complain("no command: write it behind a --, as in: gradshm run -n 4 -- ./train", kUsage);
  try {
    return run(arguments, invocation.worker_command);
  } catch (const ServerFailed& failure) {
    return complain(failure.what(), failure.exit_code);
  } catch (const core::Error& error) {
    return complain(error.what(), kUsage);
  } catch (const std::system_error& error) {
    return complain("cannot start the workers: " + std::string(error.what()), kNoCommand);
  }
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("run", "Starts a server and N workers, and cleans up: gradshm run -n N [OPTIONS] -- CMD [ARGS...]");
  sub->footer(kFooter);
  auto arguments = std::make_shared<RunArguments>();
  declare(*sub, *arguments);
  sub->allow_extras();  // to say more than CLI11 would
  sub->callback([arguments, sub, &invocation] { invocation.exit_code = run_guarded(*arguments, invocation, sub->remaining()); });
}

}  // namespace gradshm::tools
