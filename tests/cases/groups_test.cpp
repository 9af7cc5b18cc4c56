// Several policies in one instance: each group has its own weights, its own presence and its own commit.
#include <doctest/doctest.h>

#include <algorithm>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

constexpr double kWeightsA[] = {500, 500, 500, 552};  // 2,052
constexpr double kWeightsB[] = {200, 300, 400, 126};  // 1,026

// Rank 2 registers them the other way round.
Layout two_policies(int rank) {
  Layout layout;
  if (rank == 2) layout.add("b.head", DType::f32, {31}).add("a.head", DType::f32, {17});
  else layout.add("a.head", DType::f32, {17}).add("b.head", DType::f32, {31});
  return layout;
}

bool all_are(std::span<const float> elements, float value) {
  return std::ranges::all_of(elements, [value](float element) { return element == value; });
}

// Sums over samples: w times (rank + 1) for a, w times 10 (rank + 1) for b. Rank 3 commits b before a.
void commit_both(Verdict& verdict, Worker& worker, std::size_t rank) {
  const double a = kWeightsA[rank], b = kWeightsB[rank];
  std::ranges::fill(worker.slot<float>("a.head"), static_cast<float>(a * static_cast<double>(rank + 1)));
  std::ranges::fill(worker.slot<float>("b.head"), static_cast<float>(b * 10 * static_cast<double>(rank + 1)));
  const std::size_t group_a = worker.find_group("a."), group_b = worker.find_group("b.");
  if (rank == 3) verdict.expect(worker.commit_group(group_b, {.weight = b}).status() == Outcome::ok);
  verdict.expect(worker.commit_group(group_a, {.weight = a}).status() == Outcome::ok);
  if (rank != 3) verdict.expect(worker.commit_group(group_b, {.weight = b}).status() == Outcome::ok);
}

int learn(const std::string& instance, int rank) {
  Verdict verdict;
  Worker worker = attach(instance, two_policies(rank), rank);
  commit_both(verdict, worker, static_cast<std::size_t>(rank));
  verdict.expect(worker.wait(0, kPatience) == Outcome::ok);
  // 500 + 1000 + 1500 + 2208 over 2052, and 2000 + 6000 + 12000 + 5040 over 1026.
  verdict.expect(all_are(worker.result<float>("a.head"), 5208.0f / 2052.0f));
  verdict.expect(all_are(worker.result<float>("b.head"), 25040.0f / 1026.0f));
  verdict.expect(worker.round_group_weight(1, worker.find_group("a.")) == 2052);
  verdict.expect(worker.round_group_weight(1, worker.find_group("b.")) == 1026);
  verdict.expect(worker.result_info("a.head").weight_sum == 2052);
  verdict.expect(worker.result_info("b.head").weight_sum == 1026);
  return verdict.code();
}

// Rank 1 has no data for b; its slot bytes there are garbage.
int learn_without_b(const std::string& instance, int rank) {
  Verdict verdict;
  Worker worker = attach(instance, two_policies(rank), rank);
  std::ranges::fill(worker.slot<float>("a.head"), static_cast<float>(rank + 1));
  std::ranges::fill(worker.slot<float>("b.head"), rank == 1 ? 1e30f : static_cast<float>(rank + 1));
  const CommitOptions for_b{.presence = rank == 1 ? Presence::none : Presence::all};
  verdict.expect(worker.commit_group(worker.find_group("a.")).status() == Outcome::ok);
  verdict.expect(worker.commit_group(worker.find_group("b."), for_b).status() == Outcome::ok);
  verdict.expect(worker.wait(0, kPatience) == Outcome::ok);
  verdict.expect(all_are(worker.result<float>("a.head"), 10.0f / 4.0f));
  verdict.expect(all_are(worker.result<float>("b.head"), 8.0f / 3.0f));
  verdict.expect(worker.result_info("a.head").count == 4);
  verdict.expect(worker.result_info("b.head").count == 3 && worker.result_info("b.head").weight_sum == 3);
  verdict.expect(worker.round(1).member_count == 4);
  return verdict.code();
}

}  // namespace

TEST_CASE("ray#63819: two policies are matched by name and each has the mean by its own weights, in whatever order they are committed") {
  DaemonProcess daemon({"--expect", "4", "--group", "a.", "--group", "b."});
  auto workers = start_workers(4, [&](int rank) { return learn(daemon.name(), rank); });
  CHECK(exit_codes(workers) == "0 0 0 0");
}

TEST_CASE("ray PR#66030: with one learner that has no data for b, b is the mean of the other three and says 3 of 4") {
  DaemonProcess daemon({"--expect", "4", "--group", "a.", "--group", "b."});
  auto workers = start_workers(4, [&](int rank) { return learn_without_b(daemon.name(), rank); });
  CHECK(exit_codes(workers) == "0 0 0 0");
}
