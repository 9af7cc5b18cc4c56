// Two policies, learnt by four processes through one server, which runs in this program. Each policy is a group: its gradients are
// weighted by the samples a learner has for it, and the learner without any for policy b abstains there. In mid-run one learner is
// killed with SIGKILL; a fresh one takes its rank and loads the state from a file. In the end this program repeats the run alone, from
// the record of who contributed to which round, and compares the weights bit for bit.
#include "checkpoint.hpp"
#include "fashion/random.hpp"
#include "policies/learner.hpp"
#include "policies/replay.hpp"

#include <CLI/CLI.hpp>
#include <gradshm/server.hpp>

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace policies;

constexpr int kVictim = 2;
constexpr int kMaxRounds = 10'000'000;
volatile std::sig_atomic_t stop_signal = 0;

// Those that are left when it is destroyed are killed.
class Learners {
 public:
  Learners() = default;
  ~Learners() {
    for (const auto& [pid, rank] : ranks_) kill(pid, SIGKILL);
    for (const auto& [pid, rank] : ranks_) waitpid(pid, nullptr, 0);
  }
  Learners(const Learners&) = delete;
  Learners& operator=(const Learners&) = delete;

  // This program again, in a process of its own.
  void start(const LearnerOptions& options) {
    std::vector<std::string> words{"two_policies", "--instance", options.instance, "--directory", options.directory, "--learner", std::to_string(options.rank),
                                   "--seed", std::to_string(options.seed), "--rounds", std::to_string(options.rounds), "--die-in-round",
                                   std::to_string(options.die_in_round), "--die-at", std::to_string(static_cast<int>(options.die_at))};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t pid = 0;
    if (const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ); error != 0)
      throw std::system_error(error, std::system_category(), "cannot start a learner");
    ranks_[pid] = options.rank;
  }

  // Until one ends. Returns its rank and, where a signal ended it, its number; throws where it failed.
  std::pair<int, int> next_end() {
    int status = 0;
    const pid_t pid = wait(&status);
    if (pid < 0 && stop_signal != 0) throw std::runtime_error("interrupted");
    if (pid < 0) throw std::system_error(errno, std::system_category(), "wait");
    const int rank = ranks_.at(pid);
    ranks_.erase(pid);
    if (WIFSIGNALED(status)) return {rank, WTERMSIG(status)};
    if (WEXITSTATUS(status) != 0) throw std::runtime_error("learner " + std::to_string(rank) + " failed");
    return {rank, 0};
  }
  [[nodiscard]] bool any() const noexcept { return !ranks_.empty(); }

 private:
  std::map<pid_t, int> ranks_;
};

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    if (mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::system_category(), path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "two-policies-XXXXXX").string();
};

// Returns when all learners have ended.
void train(const LearnerOptions& common) {
  const auto server = gradshm::Server::start({.name = common.instance, .expect = kLearners});
  fashion::Random random(common.seed);
  Learners learners;
  for (int rank = 0; rank < kLearners; ++rank) {
    LearnerOptions options = common;
    options.rank = rank;
    if (rank == kVictim) options.die_in_round = common.rounds / 3 + 1, options.die_at = static_cast<Place>(random.below(3));
    learners.start(options);
  }
  for (bool replaced = false; learners.any();) {
    const auto [rank, signal] = learners.next_end();
    if (signal == 0) continue;
    if (rank != kVictim || signal != SIGKILL || replaced) throw std::runtime_error("learner " + std::to_string(rank) + " was killed by signal " + std::to_string(signal));
    LearnerOptions fresh = common;
    fresh.rank = rank;
    learners.start(fresh);
    replaced = true;
  }
}

bool is_complete(const Record& record) { return record.members == (1u << kLearners) - 1; }

// Between its death and its return the victim is no member.
std::string describe_absence(const std::vector<Record>& records) {
  const auto lost = std::find_if_not(records.begin(), records.end(), is_complete);
  if (lost == records.end()) return "back before the next round";
  const auto back = std::find_if(lost, records.end(), is_complete);
  if (back == records.end()) throw std::runtime_error("the fresh learner never took part");
  return "away in rounds " + std::to_string(lost->round) + " to " + std::to_string(back->round - 1);
}

void compare(const std::string& directory, const State& expected) {
  for (int rank = 0; rank < kLearners; ++rank) {
    State state;
    if (!examples::read_checkpoint(directory + kFinal + std::to_string(rank), std::as_writable_bytes(std::span(&state, 1))))
      throw std::runtime_error("learner " + std::to_string(rank) + " left no state");
    if (state.round != expected.round || std::memcmp(&state.weights, &expected.weights, sizeof state.weights) != 0 ||
        std::memcmp(&state.momentum, &expected.momentum, sizeof state.momentum) != 0)
      throw std::runtime_error("learner " + std::to_string(rank) + " ended with other weights than the replay");
  }
}

void run(LearnerOptions common) {
  const TemporaryDirectory directory;
  common.directory = directory.path();
  train(common);
  const std::vector<Record> records = read_records(common.directory + kRecords);
  const State expected = replay(common.seed, records);
  compare(common.directory, expected);
  const unsigned long long killed_in = common.rounds / 3 + 1;
  std::printf("two_policies: %zu rounds; learner %d killed in round %llu, %s; all weights equal the serial replay bit for bit\n", records.size(), kVictim,
              killed_in, describe_absence(records).c_str());
}

constexpr const char* kFooter = R"(Examples:
  two_policies
  two_policies --rounds 1000 --seed 7

It starts its own server and learners and needs nothing else. Prints one line.
Exit codes: 0 the weights equal the replay's, 1 they do not or something failed, 2 wrong usage, 128 + signal if interrupted.)";

void add_options(CLI::App& app, LearnerOptions& options) {
  app.set_version_flag("--version", std::string("two_policies of gradshm ") + gradshm_version());
  app.add_option("--rounds", options.rounds, "at least so many rounds")->check(CLI::Range(1, kMaxRounds).description(""))->capture_default_str();
  app.add_option("--seed", options.seed, "of the data, and of where in its round the learner is killed")->capture_default_str();
  app.add_option("--instance", options.instance, "name of the server (default two-policies-<pid>)");
  // For the processes that it starts.
  app.add_option("--learner", options.rank)->group("");
  app.add_option("--directory", options.directory)->group("");
  app.add_option("--die-in-round", options.die_in_round)->group("");
  app.add_option("--die-at", options.die_at)->group("");
  app.footer(kFooter);
}

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) { stop_signal = number; };  // no SA_RESTART: it ends the wait
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Four learner processes train two policies through one server; the run is repeated alone and compared.", "two_policies");
  LearnerOptions options;
  add_options(app, options);
  try {
    app.parse(argc, argv);
    if (options.instance.empty()) options.instance = "two-policies-" + std::to_string(getpid());
    if (options.rank >= 0) prctl(PR_SET_PDEATHSIG, SIGKILL), learn(options);
    else catch_stop_signals(), run(options);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    const std::string who = options.rank >= 0 ? "two_policies: learner " + std::to_string(options.rank) : "two_policies";
    std::fprintf(stderr, "%s: %s\n", who.c_str(), error.what());
    return stop_signal != 0 ? 128 + stop_signal : 1;
  }
}
