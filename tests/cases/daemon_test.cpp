// The server process itself: its log, its signals, its death.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "support/harness.hpp"

using namespace gradshm;
using namespace gradshm::test;
using namespace std::chrono_literals;

namespace {

Layout two_buckets() {
  Layout layout;
  layout.add("a", DType::f32, {64}).add("b", DType::f32, {64});
  return layout;
}

// Attaches, closes one round, and says how it went.
int close_one_round(const std::string& instance) {
  Worker worker = Worker::attach(instance, two_buckets(), {.rank = 0, .wait_for_server = true});
  worker.slot<float>("a")[0] = 3;
  return worker.commit().wait(30s) == Outcome::ok && worker.result<float>("a")[0] == 3 ? 0 : 1;
}

// The beacons of that name in /dev/shm.
long beacons_of(const std::string& name) {
  const auto is_its = [&](const auto& entry) { return entry.path().filename().string().find("." + name + "@") != std::string::npos; };
  return std::count_if(std::filesystem::directory_iterator("/dev/shm"), std::filesystem::directory_iterator(), is_its);
}

// gradshmd with its stderr in a pipe. The caller decides what becomes of the reading end.
struct PipedDaemon {
  RunDirectory directory;
  std::string name = fresh_name();
  int reader = -1;
  pid_t pid = -1;

  PipedDaemon() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    reader = ends[0];
    const std::string path = build_path("tools/gradshmd");
    pid = fork();
    if (pid == 0) {
      dup2(ends[1], 2);
      execl(path.c_str(), path.c_str(), "--name", name.c_str(), "--log-level", "debug", nullptr);
      _exit(127);
    }
    close(ends[1]);
  }
  ~PipedDaemon() {
    if (reader >= 0) close(reader);
    if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }
  int wait() {
    int status = 0;
    waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }
};

}  // namespace

TEST_CASE("a log reader that goes away does not take the server with it") {
  PipedDaemon daemon;
  char line[4096];
  REQUIRE(read(daemon.reader, line, sizeof line) > 0);
  close(daemon.reader);
  daemon.reader = -1;
  for (int i = 0; i < 3; ++i) CHECK(Child([&] { return close_one_round(daemon.name); }).wait() == 0);
  kill(daemon.pid, SIGTERM);
  CHECK(daemon.wait() == 0);
}

TEST_CASE("a log that nobody reads stops neither the rounds nor SIGTERM") {
  PipedDaemon daemon;
  REQUIRE(fcntl(daemon.reader, F_SETPIPE_SZ, 4096) >= 4096);
  for (int i = 0; i < 40; ++i) REQUIRE(Child([&] { return close_one_round(daemon.name); }).wait() == 0);
  kill(daemon.pid, SIGTERM);
  CHECK(daemon.wait() == 0);
}

TEST_CASE("SIGTERM right after a commit still closes the round") {
  for (int i = 0; i < 60; ++i) {
    DaemonProcess daemon({"--spin-us", "0"});
    Child worker([&] {
      Worker attached = Worker::attach(daemon.name(), two_buckets(), {.rank = 0});
      const Round round = attached.commit();
      ::kill(daemon.pid(), SIGTERM);
      return round.wait(30s) == Outcome::ok ? 0 : 1;
    });
    REQUIRE(worker.wait() == 0);
    REQUIRE(daemon.wait() == 0);
  }
}

TEST_CASE("a read without deadline ends when the server is killed before any round has closed") {
  DaemonProcess daemon;
  Board board;
  Child worker([&] {
    Worker attached = Worker::attach(daemon.name(), two_buckets(), {.rank = 0});
    board.set(0, 1);
    board.wait_for(1, 1);
    return 0;
  });
  board.wait_for(0, 1);
  Child reader([&] {
    Observer observer = Observer::observe(daemon.name());
    float data[64];
    board.set(2, 1);
    return gradshm_read(observer.get(), 0, data, sizeof data, -1, nullptr) == GRADSHM_DAEMON_LOST ? 0 : 1;
  });
  board.wait_for(2, 1);
  daemon.signal(SIGKILL);
  CHECK(reader.wait() == 0);
  board.set(1, 1);
  CHECK(worker.wait() == 0);
}

TEST_CASE("an answer that comes after its command has timed out is not taken for the next one's") {
  DaemonProcess daemon;
  Child worker([&] {
    Worker attached = Worker::attach(daemon.name(), two_buckets(), {.rank = 0});
    ::kill(daemon.pid(), SIGSTOP);
    if (gradshm_pause(attached.get()) != GRADSHM_TIMEOUT) return 1;
    ::kill(daemon.pid(), SIGCONT);
    attached.resume();
    if (attached.wait_admitted(30s) == 0) return 2;
    return attached.commit().wait(30s) == Outcome::ok ? 0 : 3;
  });
  CHECK(worker.wait() == 0);
}

TEST_CASE("what was committed before a pause that timed out is not counted after the resume") {
  DaemonProcess daemon;
  Child worker([&] {
    Worker attached = Worker::attach(daemon.name(), two_buckets(), {.rank = 0});
    if (attached.commit_bucket(0).status() != Outcome::ok) return 1;
    ::kill(daemon.pid(), SIGSTOP);
    if (gradshm_pause(attached.get()) != GRADSHM_TIMEOUT) return 2;
    ::kill(daemon.pid(), SIGCONT);
    attached.resume();
    if (attached.wait_admitted(30s) == 0) return 3;
    return attached.commit_bucket(0).status() == Outcome::ok ? 0 : 4;
  });
  CHECK(worker.wait() == 0);
}

TEST_CASE("attach keeps its time-out when the server is stopped in the middle of it") {
  DaemonProcess daemon({"--expect", "2"});
  daemon.signal(SIGSTOP);
  Child worker([&] {
    try {
      static_cast<void>(Worker::attach(daemon.name(), two_buckets(), {.rank = 0, .timeout = 200ms}));
    } catch (const Error& error) {
      return error.code().value() == GRADSHM_TIMEOUT ? 0 : 1;
    }
    return 2;
  });
  CHECK(worker.wait() == 0);
  daemon.signal(SIGCONT);
}

TEST_CASE("a file size limit gives a worker and a server a sentence, not SIGXFSZ") {
  DaemonProcess daemon;
  Child worker([&] {
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Layout layout;
      for (int i = 0; i < 2000; ++i) layout.add("parameter" + std::to_string(i), DType::f32, {16});
      static_cast<void>(Worker::attach(daemon.name(), layout, {.rank = 0}));
    } catch (const Error& error) {
      return error.code().value() == GRADSHM_NO_SPACE && std::string(error.what()).find("RLIMIT_FSIZE") != std::string::npos ? 0 : 1;
    }
    return 2;
  });
  CHECK(worker.wait() == 0);
  CHECK(Child([&] { return close_one_round(daemon.name()); }).wait() == 0);
}

TEST_CASE("a worker that waits for its server may be started first") {
  RunDirectory directory;
  const std::string name = fresh_name();
  Child worker([&] { return close_one_round(name); });
  Child server([&] {
    execl(build_path("tools/gradshmd").c_str(), "gradshmd", "--name", name.c_str(), "--log-level", "off", nullptr);
    return 127;
  });
  CHECK(worker.wait() == 0);
  server.kill(SIGTERM);
  CHECK(server.wait() == 0);
}

TEST_CASE("what a killed server leaves in /dev/shm goes with the test's directory") {
  std::optional<DaemonProcess> daemon(std::in_place);
  const std::string name = daemon->name();
  daemon->kill();
  CHECK(beacons_of(name) == 1);
  daemon.reset();
  CHECK(beacons_of(name) == 0);
}
