// Wait and poll: what they answer, and that they end.
#include <atomic>

#include "server/workers.hpp"

namespace gradshm::test {

TEST_CASE("wait without a commit is refused instead of hanging") {
  Team team(floats(2), 1, kOneEach);
  CHECK(team[0].wait() == Outcome::not_committed);
  CHECK(team[0].wait(1) == Outcome::not_committed);
  CHECK(gradshm_poll(team[0].get(), 0) == GRADSHM_NOT_COMMITTED);
  CHECK(answer(gradshm_wait(team[0].get(), 1, -1)).says("commit first (or abstain)"));
  commit_and_wait(team[0]);
  CHECK(team[0].wait(2) == Outcome::not_committed);
  CHECK(team[0].wait(1) == Outcome::ok);
}

TEST_CASE("poll says not closed, then ok, and keeps saying so") {
  Team team(floats(1), 2);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(gradshm_poll(team[0].get(), 1) == GRADSHM_NOT_CLOSED);
  CHECK(gradshm_poll(team[0].get(), 0) == GRADSHM_NOT_CLOSED);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(eventually([&] { return gradshm_poll(team[0].get(), 1) == GRADSHM_OK; }));
  CHECK(gradshm_poll(team[0].get(), 0) == GRADSHM_OK);
}

TEST_CASE("a wait that times out may be repeated and then succeeds") {
  Team team(floats(1), summing(2));
  fill_all(team[0], 1), fill_all(team[1], 2);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(team[0].wait(1, 0ns) == Outcome::timeout);
  CHECK(team[0].wait(1, 60ms) == Outcome::timeout);
  CHECK(answer(gradshm_wait(team[0].get(), 1, 1)).says("round 1 did not close in time"));
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0], 1) == Outcome::ok);
  CHECK(all_are(team[0], 0, 3));
}

TEST_CASE("a timed-out wait says when the worker waits for its own buckets") {
  Team team(floats(3), 1, kOneEach);
  CHECK(team[0].commit_bucket(1).status() == Outcome::ok);
  const Failure late = answer(gradshm_wait(team[0].get(), 1, 1));
  CHECK(late.code == GRADSHM_TIMEOUT);
  CHECK(late.says("this worker itself has not committed 2 of its buckets"));
}

TEST_CASE("several threads wait on one handle and all return") {
  Team team(floats(1), 2);
  CHECK(commit(team[0]) == Outcome::ok);
  std::thread late([&] {
    nap();
    CHECK(commit(team[1]) == Outcome::ok);
  });
  run_threads(4, [&](std::size_t) { CHECK(wait_for(team[0], 1) == Outcome::ok); });
  late.join();
}

TEST_CASE("leave makes a waiting thread return evicted") {
  Team team(floats(1), 2);
  CHECK(commit(team[0]) == Outcome::ok);
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    CHECK(wait_for(team[0], 1) == Outcome::evicted);
    returned = true;
  });
  nap();
  CHECK_FALSE(returned.load());
  team[0].leave();
  waiter.join();
  CHECK(team[0].wait(1) == Outcome::evicted);
  CHECK(commit(team[0]) == Outcome::evicted);
  CHECK(gradshm_poll(team[0].get(), 1) == GRADSHM_EVICTED);
}

TEST_CASE("spinning or not, waits answer the same") {
  ServerThread server(summing(2));
  std::vector<Worker> workers;
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(5'000'000)}) {
    AttachOptions options = unadmitted();
    options.spin = spin;
    workers.push_back(Worker::attach(server.name(), floats(1), options));
  }
  for (Worker& worker : workers) CHECK(worker.wait_admitted(kLong) == 1);
  for (int round = 0; round < 20; ++round) check_exact_round({&workers[0], &workers[1]});
  CHECK(commit(workers[1]) == Outcome::ok);
  CHECK(workers[1].wait(0, 10ms) == Outcome::timeout);
}

TEST_CASE("waits without any time learn that the server is gone") {
  auto options = expecting(2);
  options.drain_ns = -1;
  Team team(floats(1), options);
  CHECK(commit(team[0]) == Outcome::ok);
  Worker newcomer = Worker::attach(team.server.name(), floats(1), unadmitted());
  Observer observer = Observer::observe(team.server.name());
  CHECK(team[0].wait(1, 0ns) == Outcome::timeout);
  CHECK(gradshm_wait(observer.get(), 1, 0) == GRADSHM_TIMEOUT);
  CHECK(gradshm_wait_admitted(newcomer.get(), 0, nullptr) == GRADSHM_TIMEOUT);
  team.server.stop();
  CHECK(team[0].wait(1, 0ns) == Outcome::daemon_lost);
  CHECK(gradshm_wait(observer.get(), 1, 0) == GRADSHM_DAEMON_LOST);
  CHECK(gradshm_wait_admitted(newcomer.get(), 0, nullptr) == GRADSHM_DAEMON_LOST);
}

// It would spin for the rest of the runner's patience.
TEST_CASE("a worker that spins for ever learns that the server is gone") {
  auto options = expecting(2);
  options.drain_ns = -1;
  ServerThread server(options);
  AttachOptions spinning = unadmitted();
  spinning.spin = 1h;
  Worker worker = Worker::attach(server.name(), floats(1), spinning), other = Worker::attach(server.name(), floats(1), unadmitted());
  CHECK(worker.wait_admitted(kLong) == 1);
  CHECK(commit(worker) == Outcome::ok);
  std::thread waiter([&] { CHECK(worker.wait(1, std::chrono::nanoseconds(-1)) == Outcome::daemon_lost); });
  nap();
  server.stop();
  waiter.join();
}

TEST_CASE("a server that never spins loses no commit") {
  auto options = summing(2, kOneEach);
  options.spin_ns = -1;
  ServerThread server(options);
  run_threads(2, [&](std::size_t rank) {
    Worker worker = Worker::attach(server.name(), floats(3), {.rank = static_cast<int>(rank)});
    std::size_t wrong = 0;
    for (std::uint64_t round = 1; round <= 500; ++round) {
      fill_all(worker, static_cast<float>(round));
      wrong += commit(worker) == Outcome::ok && wait_for(worker) == Outcome::ok && all_are(worker, 2, static_cast<float>(2 * round)) ? 0 : 1;
    }
    CHECK(wrong == 0);
  });
}

}  // namespace gradshm::test
