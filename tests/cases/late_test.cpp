// Workers that stop, and a server that stops: who is late, and who is declared dead.
#include <doctest/doctest.h>

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cases/support.hpp"

using namespace gradshm;
using namespace gradshm::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kDeadline = "300ms";

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("S8: of four workers the one that is late is evicted: exactly three in the round, the late commit is refused and reaches no later round") {
  DaemonProcess daemon({"--op", "sum", "--expect", "4", "--round-deadline", kDeadline});
  Board board;
  auto workers = start_workers(4, [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(64), rank);
    fill(worker, 1);
    if (!step(worker) || !holds(worker, 4)) return 1;
    if (rank == 3) {
      fill(worker, 100);
      board.wait_for(0, 3);
      return worker.commit().status() == Outcome::evicted ? 0 : 2;
    }
    for (std::uint64_t round = 2; round <= 3; ++round) {
      if (!step(worker) || !holds(worker, 3) || worker.round(round).contributor_count != 3) return 3;
      board.set(static_cast<std::size_t>(rank), static_cast<long>(round));
    }
    board.wait_for(3, 1);
    return step(worker) && holds(worker, 3) ? 0 : 4;
  });
  CHECK(workers[3].wait() == 0);
  board.set(3, 1);
  for (int rank = 0; rank < 3; ++rank) CHECK(workers[static_cast<std::size_t>(rank)].wait() == 0);
}

TEST_CASE("pytorch#38174: a worker stops after 2 of 3 rounds: the others' wait times out or the deadline evicts it, and it is named") {
  for (const bool deadline : {false, true}) {
    std::vector<std::string> options{"--op", "sum", "--expect", "3"};
    if (deadline) options.insert(options.end(), {"--round-deadline", kDeadline});
    DaemonProcess daemon(options);
    Board board;
    auto workers = start_workers(3, [&](int rank) {
      Worker worker = attach(daemon.name(), one_vector(64), rank);
      fill(worker, 1);
      for (int round = 0; round < 2; ++round)
        if (!step(worker)) return 1;
      if (rank == 1) return board.wait_for(0, 1), 0;
      const Outcome outcome = worker.commit().wait(deadline ? 60s : 300ms);
      if (outcome == Outcome::timeout) return 10;
      return outcome == Outcome::ok && holds(worker, 2) ? 11 : 2;
    });
    const int expected = deadline ? 11 : 10;
    const pid_t straggler = workers[1].pid();
    if (!deadline) {
      REQUIRE(eventually([&] { return contains(run_program("tools/gradshm-top", {daemon.name(), "--once"}).text, std::to_string(straggler)); }));
    }
    CHECK(workers[0].wait() == expected);
    CHECK(workers[2].wait() == expected);
    if (deadline) CHECK(contains(daemon.log(), "worker 1 (pid " + std::to_string(straggler)));
    board.set(0, 1);
    CHECK(workers[1].wait() == 0);
  }
}

TEST_CASE("aeron#256: a stopped worker is evicted, is told once when it goes on, attaches again, and nothing of it reaches a sum") {
  DaemonProcess daemon({"--op", "sum", "--expect", "2", "--round-deadline", kDeadline});
  Board board;
  auto workers = start_workers(2, [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(4096), rank);
    if (rank == 0) {
      while (board.get(2) == 0) {
        fill(worker, 1);
        if (!step(worker)) return 1;
        if (!holds(worker, 1) && !holds(worker, 3)) return 2;
        board.set(0, holds(worker, 3) ? 3 : 1);
        board.set(3, board.get(3) + 1);
      }
      return 0;
    }
    int evictions = 0;
    while (board.get(2) == 0) {
      fill(worker, 2);
      board.set(1, board.get(1) + 1);
      const Outcome outcome = worker.commit().wait(60s);
      if (outcome == Outcome::ok) continue;
      if (outcome != Outcome::evicted) return 3;
      fill(worker, 1e6f);  // a zombie's writes
      ++evictions;
      worker = attach(daemon.name(), one_vector(4096), rank);
    }
    board.set(4, evictions);
    return 0;
  });
  REQUIRE(reaches(board, 1, 20));
  workers[1].kill(SIGSTOP);
  REQUIRE(eventually([&] { return contains(daemon.log(), "--round-deadline"); }));
  REQUIRE(reaches(board, 3, board.get(3) + 10));
  CHECK(board.get(0) == 1);
  workers[1].kill(SIGCONT);
  REQUIRE(eventually([&] { return board.get(0) == 3; }));
  board.set(2, 1);
  CHECK(exit_codes(workers) == "0 0");
  CHECK(count_of(daemon.log(), "evicted:") == 1);
}

TEST_CASE("iceoryx2#1000: a server that was stopped far beyond the deadline evicts nobody") {
  DaemonProcess daemon({"--op", "sum", "--expect", "2", "--round-deadline", kDeadline});
  Board board;
  auto workers = start_workers(2, [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(64), rank);
    fill(worker, 1);
    if (!step(worker)) return 1;
    if (rank == 0 && worker.commit_bucket(0).status() != Outcome::ok) return 2;  // the deadline runs
    board.set(static_cast<std::size_t>(rank), 1);
    board.wait_for(2, 1);  // the server is stopped, and goes on while rank 1 still takes its time
    if (rank == 1) {
      std::this_thread::sleep_for(100ms);
      if (worker.commit().status() != Outcome::ok) return 3;
    }
    return worker.wait(2, 60s) == Outcome::ok && holds(worker, 2) ? 0 : 4;
  });
  REQUIRE(reaches(board, 0, 1));
  REQUIRE(reaches(board, 1, 1));
  daemon.signal(SIGSTOP);
  std::this_thread::sleep_for(1500ms);
  board.set(2, 1);
  daemon.signal(SIGCONT);
  CHECK(exit_codes(workers) == "0 0");
  CHECK_FALSE(contains(daemon.log(), "evicted"));
}

TEST_CASE("iceoryx2#1000: CLOCK_REALTIME that jumps by an hour both ways declares nobody dead") {
#if defined(__SANITIZE_ADDRESS__)
  return skip("the address sanitizer must be the first library, so nothing can be preloaded before it");
#endif
  setenv("LD_PRELOAD", build_path("tests/libjumping_clock.so").c_str(), 1);
  DaemonProcess daemon({"--op", "sum", "--expect", "2", "--round-deadline", "5s"});
  const Output worker = run_program("examples/two_workers", {daemon.name()});
  unsetenv("LD_PRELOAD");
  CHECK_MESSAGE(worker.code == 0, worker.text);
  CHECK_FALSE(contains(daemon.log(), "evicted"));
  CHECK_FALSE(contains(daemon.log(), "did not leave"));
  // It really jumped: log lines carry the wall clock, "2026-11-30 21:..." and two hours apart.
  const auto lines = lines_of(daemon.log());
  const std::string hour = lines.front().substr(0, 13);
  CHECK(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.substr(0, 13) != hour; }));
}
