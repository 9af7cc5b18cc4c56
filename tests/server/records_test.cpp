// Looking at closed rounds: who, how much, what was not finite.
#include <unistd.h>

#include <cmath>
#include <limits>

#include "server/workers.hpp"

namespace gradshm::test {

TEST_CASE("a round's record names members, contributors, the last to arrive and the squared norm") {
  Team team(floats(3), expecting(3, kOneEach));
  for (std::size_t rank = 0; rank < 3; ++rank)
    for (std::size_t p = 0; p < 3; ++p) fill(team[rank], p, static_cast<float>(3 * (rank + p)));
  for (const std::size_t rank : {0, 2}) CHECK(commit(team[rank]) == Outcome::ok);
  nap();  // so that rank 1 is seen last
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  const auto round = team[0].round(1);
  double squares = 0;
  for (std::size_t p = 0; p < 3; ++p) squares += 4 * std::pow(static_cast<double>(3 + 3 * p), 2);  // mean over ranks of 3 (rank + p)
  CHECK(round.round == 1);
  CHECK(round.status == GRADSHM_OK);
  CHECK(round.member_count == 3);
  CHECK(round.contributor_count == 3);
  CHECK(round.members[0] == 7);
  CHECK(round.contributors[0] == 7);
  CHECK(round.members[1] + round.members[2] + round.members[3] == 0);
  CHECK(round.last_rank == 1);
  CHECK(round.sum_of_squares == squares);
  CHECK(round.nonfinite_result == 0);
  CHECK(round.nonfinite_ranks[0] == 0);
}

TEST_CASE("the times of a round are in their order") {
  Team team(floats(1), 2);
  CHECK(commit(team[1]) == Outcome::ok);
  nap();
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  const auto round = team[0].round(1);
  CHECK(round.first_commit_ns > 0);
  CHECK(round.first_commit_ns < round.last_commit_ns);
  CHECK(round.last_commit_ns <= round.closed_ns);
  CHECK(round.reduce_ns > 0);
}

TEST_CASE("ranks above 63 are in the right word of the bitmaps") {
  Layout layout = floats(1);
  ServerThread server(summing(3));
  std::vector<Worker> workers;
  for (const int rank : {255, 64, 3}) workers.push_back(Worker::attach(server.name(), layout, unadmitted(rank)));
  for (Worker& worker : workers) {
    fill_all(worker, 1);
    CHECK(worker.wait_admitted(kLong) == 1);
    CHECK(commit(worker) == Outcome::ok);
  }
  CHECK(wait_for(workers[0]) == Outcome::ok);
  const auto round = workers[0].round(1);
  CHECK(round.members[0] == std::uint64_t{1} << 3);
  CHECK(round.members[1] == 1);
  CHECK(round.contributors[2] == 0);
  CHECK(round.contributors[3] == std::uint64_t{1} << 63);
  CHECK(all_are(workers[2], 0, 3));
}

TEST_CASE("who handed in NaN or infinity is named with the number of elements") {
  Team team(floats(2, 8), summing(3));
  for (Worker& worker : team.workers) fill_all(worker, 1);
  team[1].slot<float>("p0")[3] = std::numeric_limits<float>::quiet_NaN();
  team[1].slot<float>("p1")[7] = std::numeric_limits<float>::quiet_NaN();
  team[2].slot<float>("p1")[0] = -std::numeric_limits<float>::infinity();
  for (Worker& worker : team.workers) CHECK(commit(worker) == Outcome::ok);
  for (Worker& worker : team.workers) CHECK(wait_for(worker) == Outcome::ok);
  const auto round = team[0].round(1);
  CHECK(round.nonfinite_ranks[0] == 6);
  CHECK(round.nonfinite_result == 3);
  for (const auto& [rank, elements] : {std::pair{0, 0}, {1, 2}, {2, 1}, {77, 0}}) {
    std::uint64_t found = 99;
    CHECK(gradshm_round_nonfinite(team[0].get(), 1, rank, &found) == GRADSHM_OK);
    CHECK(found == static_cast<std::uint64_t>(elements));
  }
  CHECK(std::isnan(team[0].result<float>("p0")[3]));
  CHECK(team[0].result<float>("p1")[0] == -std::numeric_limits<float>::infinity());
  CHECK(team[0].result<float>("p1")[1] == 3);
  check_exact_round({&team[0], &team[1], &team[2]});
  CHECK(team[0].round(2).nonfinite_ranks[0] == 0);
  CHECK(team[0].round(2).nonfinite_result == 0);
}

TEST_CASE("the newest 64 records are kept, older ones are not found and open ones not closed") {
  Team team(floats(1), 1);
  for (int round = 1; round <= 70; ++round) commit_and_wait(team[0]);
  CHECK(team[0].round(70).round == 70);
  CHECK(team[0].round(7).round == 7);
  const Failure old = failure_of([&] { static_cast<void>(team[0].round(6)); });
  CHECK(old.code == GRADSHM_NOT_FOUND);
  CHECK(old.says("record of round 6 is no longer kept"));
  CHECK(failure_of([&] { static_cast<void>(team[0].round_group_weight(6, 0)); }).code == GRADSHM_NOT_FOUND);
  CHECK(failure_of([&] { static_cast<void>(team[0].round(71)); }).code == GRADSHM_NOT_CLOSED);
  CHECK(failure_of([&] { static_cast<void>(team[0].round(0)); }).code == GRADSHM_INVALID);
  CHECK(failure_of([&] { static_cast<void>(team[0].round(std::uint64_t{1} << 60)); }).code == GRADSHM_NOT_CLOSED);
  std::uint64_t elements = 0;
  CHECK(gradshm_round_nonfinite(team[0].get(), 6, 0, &elements) == GRADSHM_NOT_FOUND);
  CHECK(team[0].wait(1) == Outcome::ok);
}

TEST_CASE("result info tells round, count and weights, and nothing before the first close") {
  Team team(floats(2), 2);
  CHECK(failure_of([&] { static_cast<void>(team[0].result_info("p1")); }).code == GRADSHM_NOT_CLOSED);
  CHECK(commit(team[0], {.weight = 2}) == Outcome::ok);
  CHECK(commit(team[1], {.weight = 0.5}) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  const auto info = team[0].result_info("p1");
  CHECK(info.round == 1);
  CHECK(info.present == 1);
  CHECK(info.count == 2);
  CHECK(info.weight_sum == 2.5);
}

TEST_CASE("a handle describes its instance") {
  Layout layout;
  layout.add("w", DType::f32, {3, 5}, {.group = "g", .aliases = {"tied"}, .column_major = true}).add("h", DType::bf16, {7});
  Team team(layout, summing(1));
  const auto info = team[0].info();
  CHECK(info.fingerprint == layout.fingerprint());
  CHECK(info.incarnation != 0);
  CHECK(info.parameters == 2);
  CHECK(info.groups == 2);
  CHECK(info.op == GRADSHM_SUM);
  CHECK(info.members == 1);
  CHECK(info.daemon_pid == getpid());
  const auto weight = team[0].parameter("tied");
  CHECK(std::string(weight.name) == "w");
  CHECK(weight.id == gradshm_parameter_id("tied"));  // the bytewise smallest of its names
  CHECK(weight.order == GRADSHM_ORDER_F);
  CHECK(weight.ndim == 2);
  CHECK(weight.shape[1] == 5);
  CHECK(weight.bytes == 60);
  CHECK(weight.alias_count == 1);
  CHECK(weight.mine == 1);
  CHECK(reinterpret_cast<std::uintptr_t>(team[0].slot<float>("w").data()) % 64 == 0);
  const auto half = team[0].parameter("h");
  CHECK(half.offset % 64 == 0);
  CHECK(half.numel == 7);
  CHECK(failure_of([&] { static_cast<void>(team[0].slot<float>("h")); }).says("holds bf16 elements"));
}

}  // namespace gradshm::test
