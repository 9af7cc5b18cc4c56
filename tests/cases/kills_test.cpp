// Processes killed at any moment: what stays behind, and who notices.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "cases/support.hpp"

using namespace gradshm;
using namespace gradshm::test;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> beacons_of(const std::string& name) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (contains(entry.path().filename().string(), name + "@")) found.push_back(entry.path().string());
  return found;
}

// Starts gradshmd and kills it `after`; true if it was still alive then.
bool start_and_kill(const std::string& name, std::chrono::microseconds after) {
  const std::string path = build_path("tools/gradshmd");
  const pid_t pid = fork();
  if (pid == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1), dup2(null, 2);
    execl(path.c_str(), path.c_str(), "--name", name.c_str(), nullptr);
    _exit(127);
  }
  std::this_thread::sleep_for(after);
  ::kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status);
}

}  // namespace

TEST_CASE("sglang#40723: a server killed and restarted ten times leaves one beacon while it lives and none after, and another server notices nothing") {
  DaemonProcess other({"--op", "sum"});
  Worker neighbour = attach(other.name(), one_vector(64), 0);
  std::string name;
  {
    DaemonProcess daemon;
    name = daemon.name();
    for (int time = 0; time < 10; ++time) {
      daemon.restart();
      CHECK(beacons_of(name).size() == 1);
      fill(neighbour, 2);
      CHECK(step(neighbour));
    }
  }
  CHECK(beacons_of(name).empty());
  CHECK(beacons_of("new-gradshm").empty());
  CHECK(holds(neighbour, 2));
  CHECK(neighbour.round(10).contributor_count == 1);
}

TEST_CASE("Fast-DDS#6501: a dead server's beacon with any byte flipped, cut or extended stops neither the tools nor the next server") {
  DaemonProcess daemon;
  Worker worker = attach(daemon.name(), one_vector(16), 0);
  REQUIRE(step(worker));
  daemon.kill();
  const auto beacons = beacons_of(daemon.name());
  REQUIRE(beacons.size() == 1);
  const std::string whole = read_text(beacons.front());
  const auto tools_survive = [&](const std::string& content) {
    write_text(beacons.front(), content);
    for (const auto& [program, arguments] : {std::pair<std::string, std::vector<std::string>>{"tools/gradshm", {"ls"}}, {"tools/gradshm-top", {daemon.name(), "--once"}}})
      if (run_program(program, arguments).code >= 126) return false;
    return true;
  };
  for (std::size_t at = 0; at < whole.size(); at += at < 200 ? 23 : 997) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(~flipped[at]);
    CHECK(tools_survive(flipped));
  }
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, sizeof(int) * 30, whole.size() - 1}) CHECK(tools_survive(whole.substr(0, bytes)));
  CHECK(tools_survive(whole + std::string(5000, 'x')));
  CHECK(tools_survive(std::string(whole.size(), '\xff')));
  // The next server finds a beacon that it cannot read: the worker's own copy of the control object tells it the rest.
  daemon.restart();
  fill(worker, 2);
  CHECK(step(worker));
  CHECK(worker.info().closed_round == 2);
}

TEST_CASE("boost/interprocess#128: a server killed at any moment of its start stops neither workers that look for it nor the next server") {
  RunDirectory directory;
  const std::string name = fresh_name();
  std::mt19937 random(128);
  int alive = 0;
  for (int i = 0; i < 40; ++i) alive += start_and_kill(name, std::chrono::microseconds(std::uniform_int_distribution<int>(0, 20'000)(random))) ? 1 : 0;
  CHECK(alive > 0);
  try {
    static_cast<void>(Worker::attach(name, one_vector(16), {.rank = 0, .timeout = 5s}));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code().value() == GRADSHM_NO_SERVER);
  }
  const std::string path = build_path("tools/gradshmd");
  Child server([&] { return execl(path.c_str(), path.c_str(), "--name", name.c_str(), "--log-level", "off", nullptr), 127; });
  Worker worker = Worker::attach(name, one_vector(16), {.rank = 0, .wait_for_server = true});
  CHECK(step(worker));
  server.kill(SIGTERM);
  CHECK(server.wait() == 0);
  CHECK(beacons_of(name).empty());
}

TEST_CASE("cpython#82300: a worker's forked child that exits, and somebody who removes the beacon, disturb nobody") {
  DaemonProcess daemon({"--op", "sum", "--expect", "2"});
  Board board;
  auto workers = start_workers(2, [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(256), rank);
    for (int i = 0; i < 20; ++i) {
      if (rank == 0 && i % 4 == 0) {
        const pid_t child = fork();
        if (child == 0) {
          const int code = gradshm_wait(worker.get(), 1, 0);
          exit(code == GRADSHM_FORKED ? 0 : 1);  // with atexit handlers, as Python's children do
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) return 1;
      }
      if (rank == 1 && i == 7) board.set(0, 1), board.wait_for(1, 1);
      fill(worker, 1);
      if (!step(worker) || !holds(worker, 2)) return 2;
    }
    return 0;
  });
  REQUIRE(reaches(board, 0, 1));
  const auto beacons = beacons_of(daemon.name());
  REQUIRE(beacons.size() == 1);
  std::filesystem::remove(beacons.front());
  board.set(1, 1);
  CHECK(exit_codes(workers) == "0 0");
}

TEST_CASE("vllm PR#45644: every wait has a deadline or notices death, whoever dies before answering") {
  DaemonProcess daemon({"--op", "sum", "--expect", "2", "--rejoin-timeout", "100ms"});
  SUBCASE("the server, before an attach is answered") {
    daemon.signal(SIGSTOP);
    CHECK_THROWS_AS(static_cast<void>(Worker::attach(daemon.name(), one_vector(16), {.rank = 0, .timeout = 200ms})), Error);
    Child attaching([&] {
      try {
        static_cast<void>(Worker::attach(daemon.name(), one_vector(16), {.rank = 0, .timeout = std::nullopt}));
      } catch (const Error& error) {
        return error.code().value() == GRADSHM_DAEMON_LOST ? 0 : 1;
      }
      return 2;
    });
    std::this_thread::sleep_for(50ms);
    daemon.kill();
    CHECK(attaching.wait() == 0);
  }
  SUBCASE("the server, while a worker waits to be admitted") {
    Child attaching([&] {
      try {
        static_cast<void>(Worker::attach(daemon.name(), one_vector(16), {.rank = 0, .timeout = std::nullopt}));
      } catch (const Error& error) {
        return error.code().value() == GRADSHM_DAEMON_LOST ? 0 : 1;
      }
      return 2;
    });
    REQUIRE(eventually([&] { return contains(daemon.log(), "joined"); }));
    daemon.kill();
    CHECK(attaching.wait() == 0);
  }
  SUBCASE("the peer that the first worker waits for") {
    Board board;
    auto workers = start_workers(2, [&](int rank) {
      Worker worker = attach(daemon.name(), one_vector(16), rank);
      board.set(static_cast<std::size_t>(rank), 1);
      if (rank == 1) return static_cast<void>(pause()), 1;
      fill(worker, 5);
      return worker.commit().wait() == Outcome::ok && holds(worker, 5) ? 0 : 2;
    });
    REQUIRE(reaches(board, 0, 1));
    REQUIRE(reaches(board, 1, 1));
    workers[1].kill();
    CHECK(workers[0].wait() == 0);
  }
}
