// Who is a member of which round: attach, admission, leaving, ranks.
#include <atomic>

#include "server/workers.hpp"

namespace gradshm::test {

TEST_CASE("with --expect 2 the first attach blocks until the second is there") {
  ServerThread server(summing(2));
  std::atomic<bool> attached{false};
  std::optional<Worker> first;
  std::thread waiting([&] {
    first.emplace(Worker::attach(server.name(), floats(2), {.rank = 0, .timeout = kLong}));
    attached = true;
  });
  nap();
  CHECK_FALSE(attached.load());
  Worker second = Worker::attach(server.name(), floats(2), {.rank = 1, .timeout = kLong});
  waiting.join();
  CHECK(attached.load());
  CHECK(first->wait_admitted() == 1);
  CHECK(second.wait_admitted() == 1);
  check_exact_round({&*first, &second});
}

TEST_CASE("an attach that times out says how many workers the first round waits for, and gives its rank back") {
  ServerThread server(expecting(3));
  const Failure late = attach_failure(server.name(), floats(1), {.rank = 0, .timeout = 30ms});
  CHECK(late.code == GRADSHM_TIMEOUT);
  CHECK(late.says("round 1 opens with 3 ready workers (gradshmd --expect)"));
  CHECK(late.says("cannot attach to '" + server.name() + "'"));
  Worker worker = Worker::attach(server.name(), floats(1), unadmitted(0));
  CHECK(worker.rank() == 0);
}

TEST_CASE("a later joiner is admitted when the open round closes, and its attach says so if that takes too long") {
  Team team(floats(2), summing(1));
  const Failure late = attach_failure(team.server.name(), floats(2), {.timeout = 30ms});
  CHECK(late.code == GRADSHM_TIMEOUT);
  CHECK(late.says("round 1 is still open"));
  Worker joiner = Worker::attach(team.server.name(), floats(2), unadmitted(5));
  CHECK(commit(joiner) == Outcome::not_member);
  CHECK(std::string(gradshm_last_error()).find("takes part in no round yet") != std::string::npos);
  CHECK(failure_of([&] { joiner.wait_admitted(10ms); }).code == GRADSHM_TIMEOUT);
  check_exact_round({&team[0]});
  CHECK(joiner.wait_admitted(kLong) == 2);
  check_exact_round({&team[0], &joiner});
  CHECK(team[0].round(1).members[0] == 1);
  CHECK(team[0].round(2).members[0] == 33);
}

TEST_CASE("who leaves in mid-round is left out of all buckets, also of those already summed with it") {
  Team team(floats(3), summing(2, kOneEach));
  fill_all(team[0], 100), fill_all(team[1], 1);
  CHECK(team[0].commit_bucket(0).status() == Outcome::ok);
  CHECK(team[0].commit_bucket(1).status() == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::ok);
  nap();  // buckets 0 and 1 are summed meanwhile, with both
  team[0].leave();
  CHECK(wait_for(team[1]) == Outcome::ok);
  for (std::size_t p = 0; p < 3; ++p) CHECK(all_are(team[1], p, 1));
  CHECK(team[1].round(1).contributors[0] == 2);
  CHECK(team[1].round(1).member_count == 1);
  CHECK(team[1].result_info("p0").count == 1);
}

TEST_CASE("who leaves after committing everything is counted") {
  Team team(floats(2), summing(2, kOneEach));
  fill_all(team[0], 100), fill_all(team[1], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(eventually([&] { return gradshm_poll(team[0].get(), 1) == GRADSHM_NOT_CLOSED; }));
  nap();  // the server has seen the commits
  team[0].leave();
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[1]) == Outcome::ok);
  CHECK(all_are(team[1], 0, 101));
  CHECK(team[1].round(1).contributors[0] == 3);
  check_exact_round({&team[1]});
  CHECK(team[1].round(2).members[0] == 2);
}

TEST_CASE("a commit of everything counts even if the worker leaves at once") {
  Team team(floats(2), summing(2, kOneEach));
  fill_all(team[0], 100), fill_all(team[1], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  team[0].leave();
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[1]) == Outcome::ok);
  CHECK(all_are(team[1], 0, 101));
}

TEST_CASE("a rank given up by a contributor is free at once, and its successor enters the next round") {
  Team team(floats(1), summing(2));
  fill_all(team[0], 10), fill_all(team[1], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  nap();
  team.workers.erase(team.workers.begin());
  Worker successor = Worker::attach(team.server.name(), floats(1), unadmitted(0));
  CHECK(successor.rank() == 0);
  CHECK(commit(successor) == Outcome::not_member);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 11));
  CHECK(successor.wait_admitted(kLong) == 2);
  check_exact_round({&successor, &team[0]});
}

TEST_CASE("detach frees the rank at once") {
  ServerThread server;
  for (int i = 0; i < 20; ++i) {
    Worker worker = Worker::attach(server.name(), floats(1), unadmitted(7));
    CHECK(worker.rank() == 7);
  }
}

TEST_CASE("if all members go the round stays open for the next worker") {
  ServerThread server(summing(1, kOneEach));
  {
    Worker first = Worker::attach(server.name(), floats(2));
    fill_all(first, 50);
    CHECK(first.commit_bucket(0).status() == Outcome::ok);
  }
  Worker second = Worker::attach(server.name(), floats(2));
  CHECK(second.wait_admitted() == 1);
  check_exact_round({&second});
  CHECK(second.round(1).member_count == 1);
}

TEST_CASE("a rank that is taken is refused with the holder's pid") {
  Team team(floats(1), 1);
  const Failure taken = attach_failure(team.server.name(), floats(1), unadmitted(0));
  CHECK(taken.code == GRADSHM_RANK_TAKEN);
  CHECK(taken.says("rank 0 of '" + team.server.name() + "' is taken by pid " + std::to_string(team[0].info().daemon_pid)));
}

TEST_CASE("without a wish a worker gets the lowest free rank") {
  ServerThread server;
  const auto attach = [&](int rank) { return Worker::attach(server.name(), floats(1), unadmitted(rank)); };
  Worker one = attach(1), zero = attach(GRADSHM_RANK_ANY), two = attach(GRADSHM_RANK_ANY);
  CHECK(zero.rank() == 0);
  CHECK(two.rank() == 2);
  zero.leave();
  CHECK(attach(GRADSHM_RANK_ANY).rank() == 0);
}

TEST_CASE("ranks out of range are refused") {
  ServerThread server;
  for (const int rank : {-3, 256, 1 << 30}) {
    CAPTURE(rank);
    const Failure refused = attach_failure(server.name(), floats(1), unadmitted(rank));
    CHECK(refused.code == GRADSHM_INVALID);
    CHECK(refused.says("rank " + std::to_string(rank) + " is out of range"));
  }
}

TEST_CASE("the environment variable GRADSHM_RANK chooses the rank where the caller did not") {
  ServerThread server;
  const Environment environment("GRADSHM_RANK", "9");
  CHECK(Worker::attach(server.name(), floats(1), unadmitted(GRADSHM_RANK_AUTO)).rank() == 9);
  CHECK(Worker::attach(server.name(), floats(1), unadmitted(GRADSHM_RANK_ANY)).rank() == 0);
  CHECK(Worker::attach(server.name(), floats(1), unadmitted(4)).rank() == 4);
}

TEST_CASE("a bad GRADSHM_RANK is refused by name") {
  ServerThread server;
  for (const char* text : {"256", "-1", "x", "1x", "99999999999999999999", "1.5", "0x1"}) {
    CAPTURE(text);
    const Environment environment("GRADSHM_RANK", text);
    const Failure refused = attach_failure(server.name(), floats(1), unadmitted(GRADSHM_RANK_AUTO));
    CHECK(refused.code == GRADSHM_INVALID);
    CHECK(refused.says(std::string("GRADSHM_RANK=") + text));
  }
}

TEST_CASE("more than max-workers are refused until one goes") {
  auto options = server_options();
  options.max_workers = 2;
  ServerThread server(options);
  Worker first = Worker::attach(server.name(), floats(1));
  std::optional<Worker> second(Worker::attach(server.name(), floats(1), unadmitted()));
  const Failure full = attach_failure(server.name(), floats(1));
  CHECK(full.code == GRADSHM_FULL);
  CHECK(full.says("--max-workers"));
  second.reset();
  CHECK(Worker::attach(server.name(), floats(1), unadmitted()).rank() == 1);
}

TEST_CASE("workers come and go in threads while others go on, and every sum is that of its contributors") {
  constexpr int kRounds = 60;
  ServerThread server(summing(1, kOneEach));
  Worker steady = Worker::attach(server.name(), floats(2), {.rank = 0});
  std::atomic<bool> over{false};
  std::thread visitors([&] {
    while (!over) {
      Worker visitor = Worker::attach(server.name(), floats(2), unadmitted(1));
      fill_all(visitor, 1000);
      static_cast<void>(failure_of([&] { visitor.wait_admitted(5ms); }));
      for (int i = 0; i < 3 && !over; ++i)
        if (commit(visitor) == Outcome::ok) static_cast<void>(visitor.wait(0, 5ms));
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    fill_all(steady, 1);
    CHECK(commit(steady) == Outcome::ok);
    CHECK(wait_for(steady) == Outcome::ok);
    const auto round = steady.round(steady.info().committed_round);
    const float sum = round.contributors[0] == 3 ? 1001.f : 1.f;
    for (std::size_t p = 0; p < 2; ++p) CHECK(all_are(steady, p, sum));
  }
  over = true;
  steady.leave();
  visitors.join();
}

}  // namespace gradshm::test
