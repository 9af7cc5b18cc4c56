// Absent is not zero: marked commits, abstentions, empty rounds.
#include "server/workers.hpp"

namespace gradshm::test {
namespace {

CommitOptions marked(double weight = 0) { return {.weight = weight, .presence = Presence::marked}; }

// Everybody commits what is marked and waits.
void close_marked(Team& team) {
  for (Worker& worker : team.workers) CHECK(commit(worker, marked()) == Outcome::ok);
  for (Worker& worker : team.workers) CHECK(wait_for(worker) == Outcome::ok);
}

void mark(Worker& worker, std::size_t parameter, float value, double weight = 0) {
  fill(worker, parameter, value);
  CHECK(worker.commit_parameter(parameter, {.weight = weight}).status() == Outcome::ok);
}

}  // namespace

TEST_CASE("a parameter is summed over those who marked it and divided by their weights alone") {
  Team team(floats(4), 3);
  fill_all(team[0], 1000), fill_all(team[1], 1000), fill_all(team[2], 1000);  // what is not marked must never be read
  mark(team[0], 0, 2, 1), mark(team[0], 1, 4, 1);
  mark(team[1], 0, 8, 4), mark(team[2], 2, 21, 3);
  close_marked(team);
  CHECK(all_are(team[0], 0, 2));
  CHECK(all_are(team[0], 1, 4));
  CHECK(all_are(team[0], 2, 7));
  const auto both = team[0].result_info("p0"), one = team[0].result_info("p2");
  CHECK(both.present == 1);
  CHECK(both.count == 2);
  CHECK(both.weight_sum == 5);
  CHECK(one.count == 1);
  CHECK(one.weight_sum == 3);
}

TEST_CASE("a parameter that nobody wrote is reported absent and its result is zero") {
  Team team(floats(3), 2);
  fill_all(team[0], 3), fill_all(team[1], 3);
  for (Worker& worker : team.workers) CHECK(commit(worker) == Outcome::ok);
  for (Worker& worker : team.workers) CHECK(wait_for(worker) == Outcome::ok);
  CHECK(all_are(team[0], 1, 3));
  mark(team[0], 0, 6), mark(team[1], 2, 8);
  close_marked(team);
  const auto absent = team[1].result_info("p1");
  CHECK(absent.round == 2);
  CHECK(absent.present == 0);
  CHECK(absent.count == 0);
  CHECK(absent.weight_sum == 0);
  CHECK(all_are(team[1], 1, 0));
  CHECK(all_are(team[1], 0, 6));
  CHECK(all_are(team[1], 2, 8));
}

TEST_CASE("marks count for one round only") {
  Team team(floats(2), 1);
  mark(team[0], 0, 1);
  close_marked(team);
  mark(team[0], 1, 2);
  close_marked(team);
  CHECK(team[0].result_info("p0").present == 0);
  CHECK(team[0].result_info("p1").present == 1);
}

TEST_CASE("more parameters than one word of presence bits come through one by one") {
  constexpr std::size_t kParameters = 131;
  Team team(floats(kParameters, 1), summing(2));
  CHECK(team[0].info().buckets == 1);
  for (std::size_t p = 0; p < kParameters; ++p) {
    if (p % 2 == 0) mark(team[0], p, 1);
    if (p % 3 == 0) mark(team[1], p, 2);
  }
  close_marked(team);
  for (std::size_t p = 0; p < kParameters; ++p) {
    CAPTURE(p);
    const unsigned first = p % 2 == 0 ? 1 : 0, second = p % 3 == 0 ? 1 : 0;
    CHECK(team[0].result_info(p).count == first + second);
    CHECK(all_are(team[0], p, static_cast<float>(first + 2 * second)));
  }
}

TEST_CASE("a marked commit without any mark abstains") {
  Team team(floats(2), 2);
  fill_all(team[0], 9), fill_all(team[1], 5);
  CHECK(commit(team[0], marked()) == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 5));
  CHECK(team[0].round(1).contributors[0] == 2);
}

TEST_CASE("who abstains is counted as arrived and contributes nothing") {
  Team team(floats(2), summing(3, kOneEach));
  fill_all(team[0], 1), fill_all(team[1], 100), fill_all(team[2], 2);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(team[1].abstain().status() == Outcome::ok);
  CHECK(commit(team[2]) == Outcome::ok);
  for (Worker& worker : team.workers) CHECK(wait_for(worker) == Outcome::ok);
  CHECK(all_are(team[1], 0, 3));
  const auto round = team[1].round(1);
  CHECK(round.members[0] == 7);
  CHECK(round.contributors[0] == 5);
  CHECK(round.contributor_count == 2);
  CHECK(team[1].result_info("p1").count == 2);
}

TEST_CASE("one may abstain from one bucket and take part in another") {
  Team team(floats(2), summing(2, kOneEach));
  fill_all(team[0], 1), fill_all(team[1], 2);
  CHECK(team[0].commit_bucket(0, {.presence = Presence::none}).status() == Outcome::ok);
  CHECK(team[0].commit_bucket(1).status() == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 2));
  CHECK(all_are(team[0], 1, 3));
  CHECK(team[0].round(1).contributors[0] == 3);
}

TEST_CASE("a round in which everybody abstained closes empty, and the next is as good as any") {
  Team team(floats(2), summing(2));
  check_exact_round({&team[0], &team[1]});
  for (Worker& worker : team.workers) CHECK(worker.abstain().status() == Outcome::ok);
  for (Worker& worker : team.workers) {
    CHECK(wait_for(worker) == Outcome::empty);
    CHECK(worker.wait(2, 0ns) == Outcome::empty);
    CHECK(gradshm_poll(worker.get(), 2) == GRADSHM_EMPTY);
  }
  const auto round = team[0].round(2);
  CHECK(round.status == GRADSHM_EMPTY);
  CHECK(round.member_count == 2);
  CHECK(round.contributor_count == 0);
  CHECK(round.sum_of_squares == 0);
  CHECK(team[0].result_info("p0").present == 0);
  CHECK(all_are(team[0], 0, 0));
  check_exact_round({&team[0], &team[1]});
  CHECK(team[0].round(3).status == GRADSHM_OK);
}

TEST_CASE("an abstention with a weight changes no divisor") {
  Team team(floats(1), 2);
  fill_all(team[0], 6);
  CHECK(commit(team[0], {.weight = 3}) == Outcome::ok);
  CHECK(commit(team[1], {.weight = 100, .presence = Presence::none}) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 2));
  CHECK(team[0].round_group_weight(1, 0) == 3);
}

TEST_CASE("with a weighted mean an absent parameter takes no weight either") {
  auto options = expecting(2);
  options.op = GRADSHM_WEIGHTED_MEAN;
  Team team(floats(3), options);
  mark(team[0], 0, 5, 2), mark(team[1], 0, 1, 2), mark(team[1], 1, 7, 2);
  close_marked(team);
  CHECK(all_are(team[0], 0, 3));
  CHECK(all_are(team[0], 1, 7));
}

}  // namespace gradshm::test
