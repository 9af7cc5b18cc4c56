// Scopes, weights and refusals of commit.
#include <atomic>
#include <cmath>
#include <limits>

#include "server/workers.hpp"

namespace gradshm::test {
namespace {

Layout two_groups() {
  Layout layout;
  layout.add("enc.a", DType::f32, {4}, {.group = "enc"}).add("enc.b", DType::f32, {4}, {.group = "enc"});
  layout.add("dec.a", DType::f32, {4}, {.group = "dec"}).add("dec.b", DType::f32, {4}, {.group = "dec"});
  return layout;
}

}  // namespace

TEST_CASE("commit by group, by bucket and by parameter close the same round in any order") {
  Team team(two_groups(), summing(3, kOneEach));
  for (std::size_t rank = 0; rank < 3; ++rank) fill_all(team[rank], 1);
  const std::size_t enc = team[0].find_group("enc"), dec = team[0].find_group("dec");
  CHECK(team[0].commit_group(dec).status() == Outcome::ok);
  CHECK(team[0].commit_group(enc).status() == Outcome::ok);
  for (const std::size_t bucket : {3, 0, 2, 1}) CHECK(team[1].commit_bucket(bucket).status() == Outcome::ok);
  for (const std::size_t parameter : {1, 3, 2, 0}) CHECK(team[2].commit_parameter(parameter).status() == Outcome::ok);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(wait_for(team[rank]) == Outcome::ok);
    for (std::size_t i = 0; i < 4; ++i) CHECK(all_are(team[rank], i, 3));
  }
}

TEST_CASE("a bucket commits with the last of its parameters and not before") {
  Team team(floats(3), summing(1));
  CHECK(team[0].info().buckets == 1);
  fill_all(team[0], 2);
  CHECK(team[0].commit_parameter(2).status() == Outcome::ok);
  CHECK(team[0].commit_parameter(0).status() == Outcome::ok);
  CHECK(team[0].wait(1, 30ms) == Outcome::not_committed);
  CHECK(team[0].commit_parameter(1).status() == Outcome::ok);
  CHECK(wait_for(team[0], 1) == Outcome::ok);
  CHECK(all_are(team[0], 1, 2));
}

TEST_CASE("commit of everything passes over what is committed already") {
  Team team(floats(3), 1, kOneEach);
  fill_all(team[0], 5);
  CHECK(team[0].commit_bucket(1).status() == Outcome::ok);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0], 1) == Outcome::ok);
  CHECK(all_are(team[0], 1, 5));
}

TEST_CASE("what is committed to the open round cannot be committed to it again") {
  Team team(floats(2), 2, kOneEach);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(commit(team[0]) == Outcome::already_committed);
  CHECK(team[0].commit_bucket(0).status() == Outcome::already_committed);
  CHECK(team[0].commit_parameter(1).status() == Outcome::already_committed);
  CHECK(team[0].commit_group(0).status() == Outcome::already_committed);
  CHECK(team[0].abstain().status() == Outcome::already_committed);
  CHECK(answer(gradshm_commit(team[0].get(), GRADSHM_BUCKET, 1, nullptr, nullptr)).says("has committed bucket 1 to round 1 already"));
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(commit(team[0]) == Outcome::ok);
}

TEST_CASE("a round that is committed already is waited for all the same") {
  Team team(floats(2), 2, kOneEach);
  CHECK(team[0].commit_parameter(0).status() == Outcome::ok);
  CHECK(team[0].commit_parameter(1).status() == Outcome::ok);
  for (const Round& again : {team[0].commit(), team[0].commit_group(0), team[0].commit_bucket(1), team[0].commit_parameter(1), team[0].abstain()}) {
    CHECK(again.status() == Outcome::already_committed);
    CHECK(again.number() == 1);
    CHECK(again.poll() == Outcome::not_closed);
    CHECK(again.wait(1ms) == Outcome::timeout);
  }
  const Round again = team[0].commit();
  std::thread other([&] { nap(), static_cast<void>(team[1].commit()); });
  CHECK(again.wait(kLong) == Outcome::ok);
  CHECK(again.poll() == Outcome::ok);
  other.join();
}

TEST_CASE("a parameter that is marked already, in a bucket that is not committed, is nothing to wait for") {
  Team team(floats(2), 1);
  CHECK(team[0].commit_parameter(0).status() == Outcome::ok);
  const Round again = team[0].commit_parameter(0);
  CHECK(again.number() == 1);
  CHECK(again.wait(kLong) == Outcome::not_committed);
}

TEST_CASE("a parameter is marked once a round") {
  Team team(floats(2), 1);
  CHECK(team[0].commit_parameter(0).status() == Outcome::ok);
  CHECK(team[0].commit_parameter(0).status() == Outcome::already_committed);
}

TEST_CASE("a closed round takes no commit, and neither does a future one") {
  Team team(floats(1), 1);
  commit_and_wait(team[0]);
  CHECK(commit(team[0], {.round = 1}) == Outcome::round_closed);
  CHECK(std::string(gradshm_last_error()).find("round 1 is closed; the open one is 2") != std::string::npos);
  CHECK(commit(team[0], {.round = 3}) == Outcome::invalid);
  CHECK(std::string(gradshm_last_error()).find("round 3 is not open yet; the open one is 2") != std::string::npos);
  CHECK(commit(team[0], {.round = 2}) == Outcome::ok);
  CHECK(wait_for(team[0], 2) == Outcome::ok);
}

TEST_CASE("commit tells the round it went to") {
  Team team(floats(1), 1);
  for (std::uint64_t wanted = 1; wanted <= 3; ++wanted) {
    std::uint64_t round = 0;
    CHECK(gradshm_commit(team[0].get(), GRADSHM_ALL, 0, nullptr, &round) == GRADSHM_OK);
    CHECK(round == wanted);
    CHECK(wait_for(team[0], round) == Outcome::ok);
  }
}

TEST_CASE("every group has its own weight") {
  auto options = expecting(2, kOneEach);
  Team team(two_groups(), options);
  const std::size_t enc = team[0].find_group("enc"), dec = team[0].find_group("dec");
  fill_all(team[0], 8), fill_all(team[1], 16);
  CHECK(team[0].commit_group(enc, {.weight = 2}).status() == Outcome::ok);
  CHECK(team[0].commit_group(dec, {.weight = 6}).status() == Outcome::ok);
  CHECK(team[1].commit_group(dec, {.weight = 10}).status() == Outcome::ok);
  CHECK(team[1].commit_group(enc).status() == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], team[0].find("enc.a"), 8));
  CHECK(all_are(team[0], team[0].find("dec.b"), 1.5f));
  CHECK(team[0].round_group_weight(1, enc) == 3);
  CHECK(team[0].round_group_weight(1, dec) == 16);
}

TEST_CASE("the first commit of a group fixes its weight for the round, and only for it") {
  Team team(floats(3), expecting(1, kOneEach));
  CHECK(team[0].commit_bucket(0, {.weight = 4}).status() == Outcome::ok);
  CHECK(team[0].commit_bucket(1, {.weight = 5}).status() == Outcome::invalid);
  CHECK(std::string(gradshm_last_error()).find("weight 5") != std::string::npos);
  CHECK(team[0].commit_bucket(1, {.weight = 4}).status() == Outcome::ok);
  CHECK(team[0].commit_bucket(2).status() == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(team[0].round_group_weight(1, 0) == 4);
  CHECK(team[0].result_info(std::size_t{2}).weight_sum == 4);
  CHECK(commit(team[0], {.weight = 5}) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(team[0].round_group_weight(2, 0) == 5);
}

TEST_CASE("a weight that is negative or not finite is refused and commits nothing") {
  Team team(floats(1), 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double weight : {-1.0, -0.5, kInfinity, -kInfinity, std::nan("")}) {
    CAPTURE(weight);
    CHECK(commit(team[0], {.weight = weight}) == Outcome::invalid);
    CHECK(team[0].commit_parameter(0, {.weight = weight}).status() == Outcome::invalid);
  }
  CHECK(team[0].info().committed_round == 0);
  commit_and_wait(team[0]);
}

TEST_CASE("several threads commit different buckets of one handle while another waits on it") {
  constexpr std::size_t kBuckets = 8;
  Team team(floats(kBuckets), summing(2, kOneEach));
  for (std::uint64_t round = 1; round <= 50; ++round) {
    fill_all(team[1], 10);
    CHECK(team[0].commit_bucket(0, {.weight = 1}).status() == Outcome::ok);  // so that the round may be waited for
    run_threads(3, [&](std::size_t thread) {
      if (thread == 2) {
        CHECK(wait_for(team[0], round) == Outcome::ok);
        return;
      }
      for (std::size_t bucket = 1 + thread; bucket < kBuckets; bucket += 2) {
        fill(team[0], bucket, static_cast<float>(round + bucket));
        CHECK(team[0].commit_bucket(bucket, {.weight = 1}).status() == Outcome::ok);
      }
      if (thread == 1) CHECK(commit(team[1]) == Outcome::ok);
    });
    for (std::size_t bucket = 1; bucket < kBuckets; ++bucket) CHECK(all_are(team[1], bucket, static_cast<float>(round + bucket + 10)));
  }
}

TEST_CASE("several threads mark different parameters of one bucket and the last mark commits it") {
  constexpr std::size_t kParameters = 12;
  Team team(floats(kParameters), summing(1));
  CHECK(team[0].info().buckets == 1);
  for (std::uint64_t round = 1; round <= 50; ++round) {
    run_threads(3, [&](std::size_t thread) {
      for (std::size_t p = thread; p < kParameters; p += 3) {
        fill(team[0], p, static_cast<float>(round * p));
        CHECK(team[0].commit_parameter(p, {.weight = 1}).status() == Outcome::ok);
      }
    });
    CHECK(wait_for(team[0], round) == Outcome::ok);
    for (std::size_t p = 0; p < kParameters; ++p) CHECK(all_are(team[0], p, static_cast<float>(round * p)));
  }
}

TEST_CASE("threads that leave the weight to the library are never told that it is bad") {
  Team team(floats(2), 1, kOneEach);
  std::atomic<std::uint64_t> arrived{0};
  std::atomic<int> refused{0};
  run_threads(2, [&](std::size_t thread) {
    for (std::uint64_t round = 1; round <= 1500; ++round) {
      arrived.fetch_add(1);
      while (arrived.load() < 2 * round) {}  // both go for the group's weight at once
      if (team[0].commit_bucket(thread).status() == Outcome::ok) {
        while (team[0].info().closed_round < round && refused.load() == 0) {}
      } else {
        refused.fetch_add(1);
      }
      if (refused.load() != 0) return arrived.store(~std::uint64_t{0} / 2);
    }
  });
  CHECK(refused.load() == 0);
}

}  // namespace gradshm::test
