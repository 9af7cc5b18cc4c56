// The server is killed and started again under living workers.
#include <doctest/doctest.h>

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "cases/support.hpp"

using namespace gradshm;
using namespace gradshm::test;
using namespace std::chrono_literals;

namespace {

Layout two_buckets() {
  Layout layout;
  layout.add("a", DType::f32, {64}).add("b", DType::f64, {8});
  return layout;
}

float gradient(int rank, std::uint64_t round) { return static_cast<float>(round * 8 + static_cast<std::uint64_t>(rank)); }

// One round of one worker: writes, commits, waits, checks the sum over `workers` ranks and that no round was skipped or seen twice.
bool step_and_check(Worker& worker, int workers, std::uint64_t& last) {
  const int rank = worker.rank();
  const std::uint64_t open = last == 0 ? worker.info().closed_round + 1 : last + 1;
  const float* const address = worker.result<float>("a").data();
  for (float& g : worker.slot<float>("a")) g = gradient(rank, open);
  for (double& g : worker.slot<double>("b")) g = gradient(rank, open);
  const Round round = worker.commit();
  if (round.status() != Outcome::ok || round.number() != open) return false;
  if (const Outcome outcome = round.wait(60s); outcome != Outcome::ok) {
    std::fprintf(stderr, "rank %d round %lu: outcome %d: %s\n", rank, open, static_cast<int>(outcome), gradshm_last_error());
    return false;
  }
  last = open;
  float sum = 0;
  for (int other = 0; other < workers; ++other) sum += gradient(other, open);
  bool good = worker.result<float>("a").data() == address;
  for (const float g : worker.result<float>("a")) good = good && g == sum;
  for (const double g : worker.result<double>("b")) good = good && g == static_cast<double>(sum);
  const gradshm_round_t record = worker.round(open);
  return good && record.contributor_count == static_cast<std::uint32_t>(workers) && worker.result_info("a").count == static_cast<std::uint32_t>(workers);
}

// board[rank]: newest round; board[10]: the last one, once it is known.
int train(const std::string& name, int rank, int workers, Board& board) {
  Worker worker = attach(name, two_buckets(), rank);
  std::uint64_t last = 0;
  while (board.get(10) == 0 || last < static_cast<std::uint64_t>(board.get(10))) {
    if (!step_and_check(worker, workers, last)) return 1;
    board.set(static_cast<std::size_t>(rank), static_cast<long>(last));
  }
  return 0;
}

// All stop after the same round, one that none of them can have begun.
void stop_training(Board& board) { board.set(10, board.get(0) + 1000); }

}  // namespace

TEST_CASE("a server killed again and again: no round is skipped, no sum is wrong, no address changes, and the records go on") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "3"};
  DaemonProcess daemon(options);
  Board board;
  auto workers = start_workers(3, [&](int rank) { return train(daemon.name(), rank, 3, board); });
  for (int crash = 0; crash < 8; ++crash) {
    const long seen = board.get(0);
    REQUIRE(reaches(board, 0, seen + 20 + 37 * crash));
    daemon.kill();
    if (crash % 2 == 1) std::this_thread::sleep_for(50ms);
    daemon.restart(options);
  }
  stop_training(board);
  CHECK(exit_codes(workers) == "0 0 0");
  CHECK(contains(daemon.log(), "was killed after round"));
}

TEST_CASE("two crashes in a row, the second before anybody can be back: the workers find the third server") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2"};
  DaemonProcess daemon(options);
  Board board;
  auto workers = start_workers(2, [&](int rank) { return train(daemon.name(), rank, 2, board); });
  for (int time = 0; time < 10; ++time) {
    REQUIRE(reaches(board, 0, board.get(0) + 10));
    daemon.restart(options);
    daemon.restart(options);
    if (time % 3 == 0) daemon.restart(options);
  }
  stop_training(board);
  CHECK(exit_codes(workers) == "0 0");
}

TEST_CASE("a worker that dies with the server is not waited for, and the others go on") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "3"};
  DaemonProcess daemon(options);
  Board board;
  const auto body = [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(16), rank);
    fill(worker, 1);
    if (!step(worker)) return 1;
    board.set(static_cast<std::size_t>(rank), 1);
    if (rank == 2) return static_cast<void>(pause()), 9;
    fill(worker, 1);
    const Outcome outcome = worker.commit().wait(60s);
    if (outcome != Outcome::ok || !holds(worker, 2)) return 2;
    return worker.round(2).contributor_count == 2 && worker.round(1).contributor_count == 3 ? 0 : 3;
  };
  auto workers = start_workers(3, body);
  for (std::size_t rank = 0; rank < 3; ++rank) REQUIRE(reaches(board, rank, 1));
  daemon.kill();
  workers[2].kill();
  CHECK(workers[2].wait() == 137);
  daemon.restart(options);
  CHECK(workers[0].wait() == 0);
  CHECK(workers[1].wait() == 0);
}

TEST_CASE("who does not come back in time is evicted, told so, and attaches anew") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2", "--rejoin-timeout", "300ms"};
  DaemonProcess daemon(options);
  Board board;
  const auto body = [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(16), rank);
    fill(worker, 1);
    if (!step(worker)) return 1;
    board.set(static_cast<std::size_t>(rank), 1);
    if (rank == 0) {
      fill(worker, 5);
      const Outcome outcome = worker.commit().wait(60s);  // alone, once the other one is struck off
      if (outcome != Outcome::ok || !holds(worker, 5)) return 2;
      board.set(2, 1);
      return 0;
    }
    board.wait_for(2, 1);
    fill(worker, 7);
    const Outcome late = worker.commit().wait(60s);
    if (late != Outcome::evicted) return 3;
    if (std::string(gradshm_last_error()).find("came back") == std::string::npos) return 4;
    if (worker.commit().status() != Outcome::evicted || worker.wait(2) != Outcome::evicted) return 5;
    Worker again = attach(daemon.name(), one_vector(16), rank);
    fill(again, 9);
    return step(again) && holds(again, 9) ? 0 : 6;
  };
  auto workers = start_workers(2, body);
  REQUIRE(reaches(board, 0, 1));
  REQUIRE(reaches(board, 1, 1));
  daemon.restart(options);
  CHECK(exit_codes(workers) == "0 0");
  CHECK(contains(daemon.log(), "worker 1 (pid"));
  CHECK(contains(daemon.log(), "has not come back: evicted"));
}

TEST_CASE("what was committed before the kill counts after it, and a newcomer waits until the survivors are back") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2"};
  DaemonProcess daemon(options);
  Board board;
  auto workers = start_workers(2, [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(16), rank);
    fill(worker, 1);
    if (!step(worker)) return 1;
    fill(worker, static_cast<float>(10 * (rank + 1)));
    if (rank == 0 && worker.commit().status() != Outcome::ok) return 2;  // before the kill
    board.set(static_cast<std::size_t>(rank), 1);
    board.wait_for(2, 1);                                               // the server is dead
    if (rank == 1 && worker.commit().status() != Outcome::ok) return 3;  // while it is dead
    const bool good = worker.wait(2, 60s) == Outcome::ok && holds(worker, 30) && worker.round(2).contributor_count == 2;
    if (!good) return 4;
    fill(worker, 1);
    return eventually([&] { return !step(worker) || holds(worker, 3); }) && holds(worker, 3) ? 0 : 5;  // with the newcomer
  });
  REQUIRE(reaches(board, 0, 1));
  REQUIRE(reaches(board, 1, 1));
  daemon.kill();
  Child newcomer([&] {
    Worker worker = Worker::attach(daemon.name(), one_vector(16), {.rank = 2, .wait_for_server = true});
    fill(worker, 1);
    const Round round = worker.commit();
    return round.number() >= 3 && round.wait(60s) == Outcome::ok && holds(worker, 3) ? 0 : 1;
  });
  daemon.restart(options);
  REQUIRE(eventually([&] { return contains(daemon.log(), "waiting up to 30 s for its 2 workers"); }));
  std::this_thread::sleep_for(100ms);
  board.set(2, 1);
  CHECK(exit_codes(workers) == "0 0");
  CHECK(newcomer.wait() == 0);
}

TEST_CASE("newcomers that give up while the survivors are waited for leave no descriptors behind") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2"};
  DaemonProcess daemon(options);
  std::vector<Worker> workers = attach_all(daemon.name(), one_vector(16), 2);
  REQUIRE(step_all(workers));
  daemon.restart(options);
  const std::size_t before = descriptors(daemon.pid());
  for (int i = 0; i < 8; ++i)
    CHECK_THROWS_AS(static_cast<void>(Worker::attach(daemon.name(), one_vector(16), {.rank = 5, .timeout = 50ms})), Error);
  CHECK(eventually([&] { return descriptors(daemon.pid()) == before; }));
}

TEST_CASE("a result stays what it was until the wait for the next round returns") {
  DaemonProcess daemon({"--op", "sum"});
  Worker worker = attach(daemon.name(), one_vector(1024), 0);
  fill(worker, 3);
  REQUIRE(step(worker));
  const float* const result = worker.result<float>("w").data();
  daemon.restart({"--op", "sum"});
  CHECK(worker.wait(1, 60s) == Outcome::ok);
  CHECK(holds(worker, 3));
  fill(worker, 4);
  const Round round = worker.commit();
  REQUIRE(eventually([&] { return worker.info().closed_round == 2 || round.poll() == Outcome::ok; }));
  CHECK(round.wait(60s) == Outcome::ok);
  CHECK(worker.result<float>("w").data() == result);
  CHECK(holds(worker, 4));
}

TEST_CASE("a planned stop is told at once, without looking for a successor") {
  DaemonProcess daemon;
  Worker worker = attach(daemon.name(), one_vector(16), 0);
  REQUIRE(step(worker));
  daemon.signal(SIGTERM);
  daemon.wait();
  fill(worker, 1);
  CHECK(worker.commit().wait() == Outcome::daemon_lost);
}

TEST_CASE("without a successor waits end with DAEMON_LOST after the rejoin time-out, or with TIMEOUT at their own deadline") {
  DaemonProcess daemon({"--rejoin-timeout", "400ms"});
  Worker worker = attach(daemon.name(), one_vector(16), 0);
  REQUIRE(step(worker));
  daemon.kill();
  const Round round = worker.commit();
  CHECK(round.wait(10ms) == Outcome::timeout);
  CHECK_MESSAGE(contains(gradshm_last_error(), "was killed; wait again: a successor is looked for up to 0.4 s"), gradshm_last_error());
  CHECK(round.poll() != Outcome::ok);
  CHECK(round.wait() == Outcome::daemon_lost);
  CHECK(contains(gradshm_last_error(), "no successor came"));
}

TEST_CASE("another bucket size or other groups are ignored at a restart, and the log says so where they differ") {
  DaemonProcess daemon({"--bucket-bytes", "4096"});
  Worker worker = attach(daemon.name(), one_vector(16), 0);
  REQUIRE(step(worker));
  const auto log_of_restart = [&](const std::vector<std::string>& options) {
    const std::size_t before = daemon.log().size();
    daemon.restart(options);
    REQUIRE(step(worker));
    REQUIRE(eventually([&] { return daemon.log().find("came back after round", before) != std::string::npos; }));  // a later line
    return daemon.log().substr(before);
  };
  const std::string other = log_of_restart({"--bucket-bytes", "64", "--group", "w"});
  CHECK_MESSAGE(contains(other, "ignored: --bucket-bytes 64: the layout of the server that was killed goes on, made with 4096"), other);
  CHECK_MESSAGE(contains(other, "goes on, with 'w' in group '', not 'w'"), other);
  CHECK(!contains(log_of_restart({"--bucket-bytes", "4096"}), "ignored"));  // what goes on is what counts, not what was asked for in between
}

TEST_CASE("a restart with another layout or operation is refused, in words that say which") {
  RunDirectory scratch;
  write_text(scratch.path() + "/other.tsv", "name\tdtype\tshape\tnumel\nv\tfloat32\t16\t16\n");
  struct Try {
    std::vector<std::string> options;
    Outcome outcome;
    std::string words;
  };
  const Try tries[] = {
      {{"--layout", scratch.path() + "/other.tsv"}, Outcome::layout_mismatch, "'v'"},
      {{"--op", "sum"}, Outcome::incompatible, "had --op mean, another --op than this one (sum): restart it with the same options"},
  };
  for (const Try& attempt : tries) {
    DaemonProcess daemon({"--op", "mean"});
    Worker worker = attach(daemon.name(), one_vector(16), 0);
    REQUIRE(step(worker));
    daemon.restart(attempt.options);
    const Outcome outcome = worker.commit().wait(60s);
    CHECK(outcome == attempt.outcome);
    CHECK_MESSAGE(contains(gradshm_last_error(), attempt.words), gradshm_last_error());
    daemon.restart({"--op", "mean"});  // with the right options it is taken back all the same
    CHECK(worker.wait(2, 60s) == Outcome::ok);
  }
}

TEST_CASE("a worker that was paused when the server was killed resumes whenever it likes") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2"};
  DaemonProcess daemon(options);
  Board board;
  Child paused([&] {
    Worker worker = attach(daemon.name(), one_vector(16), 1);
    fill(worker, 1);
    if (!step(worker)) return 1;
    worker.pause();
    board.set(0, 1);
    board.wait_for(1, 1);
    worker.resume();
    worker.wait_admitted(60s);
    fill(worker, 2);
    return step(worker) && holds(worker, 3) ? 0 : 2;
  });
  Worker worker = attach(daemon.name(), one_vector(16), 0);
  fill(worker, 1);
  REQUIRE(step(worker));
  REQUIRE(reaches(board, 0, 1));
  daemon.restart(options);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(step(worker));
    CHECK(holds(worker, 1));
  }
  CHECK_THROWS_WITH_AS(attach(daemon.name(), one_vector(16), 1), doctest::Contains("paused before the server was restarted"), Error);
  board.set(1, 1);
  REQUIRE(eventually([&] { return step(worker) && holds(worker, 3); }));
  CHECK(paused.wait() == 0);
}

// Once its rounds had begun at 1 again, an old commit of the paused worker was counted in a new round of the same number.
TEST_CASE("with none but paused survivors the rounds go on behind those that they have seen, for newcomers too") {
  DaemonProcess daemon({"--op", "sum"});
  const Layout layout = one_vector(16);
  Worker paused = attach(daemon.name(), layout, 0);
  for (int round = 1; round <= 4; ++round) REQUIRE(step(paused));
  fill(paused, 1000);
  REQUIRE(step(paused));
  paused.pause();
  daemon.kill();
  daemon.restart({"--op", "sum"});
  Worker newcomer = attach(daemon.name(), layout, 1);
  fill(newcomer, 1);
  const Round first = newcomer.commit();
  CHECK(first.number() == 6);
  CHECK(first.wait(kPatience) == Outcome::ok);
  CHECK(holds(newcomer, 1));
  paused.resume();  // into the round behind the one that is open
  CHECK(paused.info().closed_round == 6);
  REQUIRE(step(newcomer));
  CHECK(holds(newcomer, 1));
  CHECK(paused.wait_admitted(kPatience) == 8);
  fill(paused, 7);
  std::vector<Worker> both;
  both.push_back(std::move(paused)), both.push_back(std::move(newcomer));
  CHECK(step_all(both));
  CHECK(holds(both[0], 8));
}

TEST_CASE("what a worker committed completely before it paused is counted after a kill, too") {
  DaemonProcess daemon({"--op", "sum", "--expect", "2"});
  std::vector<Worker> workers = attach_all(daemon.name(), one_vector(16), 2);
  REQUIRE(step_all(workers));
  fill(workers[0], 100), fill(workers[1], 2);
  const Round committed = workers[0].commit();
  CHECK(committed.number() == 2);
  workers[0].pause();
  daemon.kill();
  daemon.restart({"--op", "sum", "--expect", "2"});
  static_cast<void>(workers[1].commit());
  std::thread other([&] { CHECK(workers[1].wait(0, kPatience) == Outcome::ok); });
  CHECK(committed.wait(kPatience) == Outcome::ok);
  other.join();
  CHECK(holds(workers[0], 102));
  CHECK(workers[1].round(2).contributor_count == 2);
  CHECK(step(workers[1]));  // the paused one is not waited for in round 3
  workers[0].resume();
}

TEST_CASE("a server whose beacon somebody removed is restarted all the same: the first worker tells who was there") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2"};
  DaemonProcess daemon(options);
  Board board;
  auto workers = start_workers(2, [&](int rank) { return train(daemon.name(), rank, 2, board); });
  REQUIRE(reaches(board, 0, 20));
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (contains(entry.path().string(), daemon.name() + "@")) std::filesystem::remove(entry.path());
  REQUIRE(reaches(board, 0, board.get(0) + 20));
  daemon.restart(options);
  REQUIRE(reaches(board, 0, board.get(0) + 20));
  stop_training(board);
  CHECK(exit_codes(workers) == "0 0");
}

TEST_CASE("a partial worker and several threads on one handle survive a restart") {
  const std::vector<std::string> options{"--op", "sum"};
  DaemonProcess daemon(options);
  Worker whole = attach(daemon.name(), two_buckets(), 0);
  Layout part;
  part.add("b", DType::f64, {8});
  Child partial([&] {
    Worker worker = Worker::attach(daemon.name(), part, {.rank = 1, .partial = true});
    for (int i = 0; i < 3; ++i) {
      for (double& g : worker.slot<double>("b")) g = 2;
      if (worker.commit().wait(60s) != Outcome::ok || worker.result<double>("b")[7] != 3) return 1;
    }
    return 0;
  });
  const auto both = [&] { return step(whole) && whole.round(whole.info().closed_round).member_count == 2; };
  for (float& g : whole.slot<float>("a")) g = 1;
  for (double& g : whole.slot<double>("b")) g = 1;
  REQUIRE(eventually(both));
  daemon.kill();
  const std::size_t last = whole.info().buckets - 1;
  std::vector<std::thread> threads;
  std::vector<Outcome> outcomes(last + 1, Outcome::internal);
  for (std::size_t bucket = 0; bucket <= last; ++bucket)
    threads.emplace_back([&, bucket] { outcomes[bucket] = whole.commit_bucket(bucket).wait(60s); });
  daemon.restart(options);
  for (std::thread& thread : threads) thread.join();
  for (const Outcome outcome : outcomes) CHECK(outcome == Outcome::ok);
  CHECK(whole.result<double>("b")[0] == 3);
  CHECK(whole.result<float>("a")[0] == 1);
  CHECK(both());
  CHECK(partial.wait() == 0);
}

TEST_CASE("while a new server waits for survivors, gradshm-top names those and nobody who is back") {
  const std::vector<std::string> options{"--op", "sum", "--expect", "2"};
  DaemonProcess daemon(options);
  Board board;
  const auto body = [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(16), rank);
    if (!step(worker)) return 1;
    board.set(static_cast<std::size_t>(rank), 1);
    if (rank == 1) board.wait_for(2, 1);  // does not notice
    return step(worker) ? 0 : 2;
  };
  auto workers = start_workers(2, body);
  for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(reaches(board, rank, 1));
  daemon.restart(options);
  const auto shown = [&](const char* format) { return run_program("tools/gradshm-top", {daemon.name(), "--once", "--color", "never", format}).text; };
  const std::string whom = "for worker 1 (pid " + std::to_string(workers[1].pid()) + ") to come back after the restart";
  CHECK_MESSAGE(eventually([&] { return contains(shown("--json"), "; 1 member is back"); }), shown("--json"));
  const std::string document = shown("--json");
  CHECK_MESSAGE(contains(document, "\"waiting_for\":[1]"), document);
  CHECK_MESSAGE(contains(document, "the server waits up to 30 s " + whom), document);
  board.set(2, 1);
  CHECK(exit_codes(workers) == "0 0");
}
