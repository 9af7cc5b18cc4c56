// Round deadline, eviction, and what evicted workers may hold.
#include "server/workers.hpp"

namespace gradshm::test {
namespace {

gradshm_server_options_t with_deadline(unsigned expect, std::chrono::nanoseconds deadline, std::uint64_t bucket_bytes = 0) {
  auto options = summing(expect, bucket_bytes);
  options.round_deadline_ns = deadline.count();
  return options;
}

}  // namespace

TEST_CASE("who has not committed by the deadline is evicted, and the round closes with the others") {
  Log log;
  auto options = with_deadline(3, 1s);
  log.attach_to(options);
  Team team(floats(2), options);
  for (std::size_t i : {0u, 1u}) {
    fill_all(team[i], 1);
    CHECK(commit(team[i]) == Outcome::ok);
  }
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 2));
  CHECK(team[0].round(1).contributor_count == 2);
  CHECK(commit(team[2]) == Outcome::evicted);
  CHECK(log.comes_to_say("had not committed everything to round 1 1 s after its first commit"));
  check_exact_round({&team[0], &team[1]});
}

TEST_CASE("the deadline holds while the server spins") {
  auto options = with_deadline(2, 100ms);
  options.spin_ns = 10'000'000'000;
  Team team(floats(1), options);
  fill_all(team[0], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::evicted);
}

TEST_CASE("a worker that committed some of its buckets is evicted from all of them") {
  Team team(floats(3), with_deadline(2, 1s, kOneEach));
  fill_all(team[0], 1), fill_all(team[1], 10);
  CHECK(team[1].commit_bucket(0).status() == Outcome::ok);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  for (std::size_t i = 0; i < 3; ++i) CHECK(all_are(team[0], i, 1));
  CHECK(wait_for(team[1]) == Outcome::evicted);
}

TEST_CASE("the deadline runs from the first commit: a round that nobody has begun evicts nobody") {
  Team team(floats(1), with_deadline(2, 1s));
  std::this_thread::sleep_for(1200ms);
  check_exact_round({&team[0], &team[1]});
  std::this_thread::sleep_for(1200ms);
  check_exact_round({&team[0], &team[1]});
}

TEST_CASE("abstaining in time and being paused keep a worker from being evicted") {
  Team team(floats(1), with_deadline(3, 1s));
  team[2].pause();
  for (int i = 0; i < 3; ++i) {
    fill_all(team[0], 1);
    CHECK(team[1].abstain().status() == Outcome::ok);
    CHECK(commit(team[0]) == Outcome::ok);
    CHECK(wait_for(team[0]) == Outcome::ok);
    CHECK(wait_for(team[1]) == Outcome::ok);
    CHECK(all_are(team[0], 0, 1));
  }
  std::this_thread::sleep_for(1200ms);
  team[2].resume();
  fill_all(team[0], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(team[2].wait_admitted(kLong) > 1);
}

TEST_CASE("without a deadline a slow worker is waited for") {
  Team team(floats(1), summing(2));
  fill_all(team[0], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(team[0].wait(1, 400ms) == Outcome::timeout);
  fill_all(team[1], 2);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 3));
}

TEST_CASE("an evicted worker's handle answers EVICTED in every call, and a new one takes the same rank") {
  Team team(floats(1), with_deadline(2, 1s));
  fill_all(team[0], 1);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::evicted);
  CHECK(wait_for(team[1], 1) == Outcome::evicted);
  CHECK(failure_of([&] { team[1].pause(); }).code == GRADSHM_EVICTED);
  CHECK(failure_of([&] { team[1].leave(); }).code == GRADSHM_EVICTED);
  fill(team[1], 0, 99);  // its memory stays its own
  Worker again = Worker::attach(team.server.name(), floats(1), unadmitted(1));
  REQUIRE(eventually([&] {
    commit_and_wait(team[0]);
    return gradshm_wait_admitted(again.get(), 0, nullptr) == GRADSHM_OK;
  }));
  check_exact_round({&team[0], &again});
}

TEST_CASE("evicted workers that live on hold memory up to the budget, and detaching frees it") {
  auto options = with_deadline(1, 30ms);
  Layout layout = floats(1, 4096);
  options.memory_budget = 4 * (16384 + 8192);  // of four slots, headers included
  ServerThread server(options);
  Worker steady = Worker::attach(server.name(), layout, {.rank = 0});
  std::vector<Worker> evicted;
  Failure refusal;
  for (int i = 0; i < 8 && refusal.code == 0; ++i) {
    refusal = failure_of([&] {
      Worker victim = Worker::attach(server.name(), layout, {.rank = 1, .wait_for_admission = false});
      REQUIRE(eventually([&] {  // until it is admitted and misses a round
        static_cast<void>(steady.commit().wait(kLong));
        return gradshm_poll(victim.get(), 1000) == GRADSHM_EVICTED;
      }));
      evicted.push_back(std::move(victim));
    });
  }
  CHECK(refusal.code == GRADSHM_NO_SPACE);
  CHECK(refusal.says("evicted workers that live on hold"));
  CHECK(evicted.size() == 3);
  evicted.clear();
  Worker next = Worker::attach(server.name(), layout, {.rank = 1, .wait_for_admission = false});
  CHECK(next.rank() == 1);
}

TEST_CASE("workers that have left but not detached hold memory up to the budget, too") {
  auto options = summing(1);
  Layout layout = floats(1, 4096);
  options.memory_budget = 4 * (16384 + 8192);  // of four slots, headers included
  ServerThread server(options);
  std::vector<Worker> left;
  Failure refusal;
  for (int i = 0; i < 8 && refusal.code == 0; ++i) {
    refusal = failure_of([&] {
      left.push_back(Worker::attach(server.name(), layout));
      left.back().leave();
    });
  }
  CHECK(refusal.code == GRADSHM_NO_SPACE);
  CHECK(refusal.says("left and evicted workers that live on hold"));
  CHECK(left.size() == 4);
  left.clear();
  CHECK(Worker::attach(server.name(), layout).rank() == 0);
}

TEST_CASE("a spin of more than 10 s is refused") {
  auto options = summing(1);
  options.size = sizeof options;
  options.name = "never";
  options.spin_ns = 10'000'000'001;
  gradshm_server_t* server = nullptr;
  CHECK(gradshm_server_create(&options, &server) == GRADSHM_INVALID);
  CHECK(std::string(gradshm_server_last_error()).find("spin takes at most 10 s") != std::string::npos);
}

TEST_CASE("a budget that the expected workers cannot keep to is refused as soon as the layout is known") {
  auto options = with_deadline(2, 30ms);
  options.memory_budget = 16384 + 8192;  // one slot
  ServerThread server(options);
  const Failure refusal = attach_failure(server.name(), floats(1, 4096));
  CHECK(refusal.code == GRADSHM_NO_SPACE);
  CHECK(refusal.says("is 24,576 bytes, but round 1 opens with 2 workers, whose slots take "));
  CHECK(attach_failure(server.name(), floats(1, 16)).code == 0);  // the refused one has not brought the layout
}

TEST_CASE("where no evicted worker holds memory, a full budget does not advise to detach one") {
  auto options = with_deadline(1, 30s);
  options.memory_budget = 16384 + 8192;
  Team team(floats(1, 4096), options);
  const Failure refusal = attach_failure(team.server.name(), floats(1, 4096));
  CHECK(refusal.code == GRADSHM_NO_SPACE);
  CHECK(refusal.says("2 slots with this one take "));
  CHECK(!refusal.says("evicted"));
}

TEST_CASE("times that make no sense are refused") {
  for (const bool deadline : {true, false}) {
    auto options = summing(1);
    options.size = sizeof options;
    options.name = "never";
    (deadline ? options.round_deadline_ns : options.rejoin_timeout_ns) = std::int64_t{1} << 61;
    gradshm_server_t* server = nullptr;
    CHECK(gradshm_server_create(&options, &server) == GRADSHM_INVALID);
    CHECK(std::string(gradshm_server_last_error()).find(deadline ? "round-deadline" : "rejoin-timeout") != std::string::npos);
  }
}

}  // namespace gradshm::test
