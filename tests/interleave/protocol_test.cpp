// The protocol itself: no execution goes wrong, and each order in it is needed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "interleave/memory.hpp"
#include "interleave/scenarios.hpp"

using namespace gradshm::test;

namespace {

// Enough for every weakening to be noticed, and few enough to try one after the other in seconds.
constexpr unsigned kDeviationsWhileWeakened = 4;

const char* name_of(Order order) {
  constexpr const char* kNames[] = {"relaxed", "acquire", "release", "seq_cst"};
  return kNames[static_cast<int>(order)];
}

bool is_of_a_test(const SeenSite& site) { return site.file.find("tests/") != std::string::npos; }
std::string place_of(const SeenSite& site) { return site.file + ":" + std::to_string(site.line); }

// Meets every site on the way.
const std::vector<SeenSite>& seen_sites() {
  static const std::vector<SeenSite> sites = [] {
    for (const Scenario& scenario : scenarios()) static_cast<void>(scenario.run({1, scenario.limits.executions}));
    return memory().sites();
  }();
  return sites;
}

// The first thing that goes wrong; fewest deviations first.
std::string what_goes_wrong() {
  for (unsigned deviations = 1; deviations <= kDeviationsWhileWeakened; ++deviations)
    for (const Scenario& scenario : scenarios()) {
      const Outcome outcome = scenario.run({std::min(deviations, scenario.limits.deviations), scenario.limits.executions});
      if (!outcome.error.empty()) return "'" + scenario.name + "': " + outcome.error;
    }
  return "";
}

// Not run here: accesses by tools alone, whose mistakes are only shown.
bool is_left_out(const std::string& file, const std::string& line) {
  if (file == "client/slot_view.cpp") return true;  // a look into a slot that its worker may be writing: says so itself
  return line.find("load_seq_cst(shared.word);  // order: seq_cst, pairs with Publisher::member") != std::string::npos;
}

void check_reached(const std::filesystem::path& path, const std::string& file) {
  static const std::regex access(R"(\b(load_acquire|load_seq_cst|store_release|store_seq_cst|add_seq_cst|fence_acquire|fence_release|fence_stores)\()");
  std::ifstream source(path);
  std::string line;
  for (unsigned number = 1; std::getline(source, line); ++number) {
    const std::string code = line.substr(0, line.find("//"));
    if (!std::regex_search(code, access) || is_left_out(file, line)) continue;
    const auto here = [&](const SeenSite& site) { return site.file == file && site.line == number; };
    CHECK_MESSAGE(std::any_of(seen_sites().begin(), seen_sites().end(), here), file << ":" << number << " is reached by no scenario: " << line);
  }
}

}  // namespace

TEST_CASE("no execution of the protocol races, sleeps for ever or takes a wrong sum") {
  for (const Scenario& scenario : scenarios()) {
    const Outcome outcome = scenario.run(scenario.limits);
    const std::string bound = outcome.bounded ? "up to " + std::to_string(scenario.limits.deviations) + " deviations" : "all";
    std::printf("%-24s %-46s %8lu executions, %s\n", scenario.name.c_str(), scenario.threads.c_str(), outcome.executions, bound.c_str());
    CHECK(outcome.exhausted);
    CHECK_MESSAGE(outcome.error.empty(), scenario.name << ": " << outcome.error);
    if (outcome.error.empty()) continue;
    memory().trace(true);
    static_cast<void>(scenario.run(scenario.limits));
    memory().trace(false);
    for (const std::string& step : memory().trace()) std::printf("  %s\n", step.c_str());
  }
}

TEST_CASE("every acquire, release, seq_cst and fence that is weakened to relaxed goes wrong somewhere") {
  const auto sites = seen_sites();
  CHECK(sites.size() > 20);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (is_of_a_test(sites[i])) continue;
    memory().weaken(static_cast<int>(i));
    const std::string error = what_goes_wrong();
    memory().weaken(-1);
    std::printf("%-30s %-15s %-8s %s\n", place_of(sites[i]).c_str(), sites[i].what.c_str(), name_of(sites[i].order), error.c_str());
    CHECK_MESSAGE(!error.empty(), place_of(sites[i]) << " " << sites[i].what << ": nobody notices a relaxed one");
  }
}

TEST_CASE("every acquire, release, seq_cst and fence in src is reached by a scenario") {
  const char* const root = std::getenv("GRADSHM_SOURCE");
  REQUIRE(root != nullptr);
  const std::filesystem::path src = std::filesystem::path(root) / "src";
  unsigned files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(src)) {
    const std::string file = std::filesystem::relative(entry.path(), src).string();
    if (!entry.is_regular_file() || file == "protocol/atomics.hpp") continue;
    check_reached(entry.path(), file), ++files;
  }
  CHECK(files > 20);
}
