// Servers that stop, drain and come back; second servers; forked children.
#include <unistd.h>

#include <atomic>

#include "server/workers.hpp"

namespace gradshm::test {

TEST_CASE("waits answer daemon lost when the server stops, and so does everything after") {
  auto options = expecting(2);
  options.drain_ns = -1;
  Team team(floats(1), options);
  CHECK(commit(team[0]) == Outcome::ok);
  std::thread waiter([&] { CHECK(wait_for(team[0], 1) == Outcome::daemon_lost); });
  nap();
  team.server.stop();
  waiter.join();
  CHECK(team[0].wait(1) == Outcome::daemon_lost);
  CHECK(answer(gradshm_wait(team[0].get(), 1, -1)).says("is gone; round 1 was not closed"));
  CHECK(eventually([&] { return gradshm_poll(team[0].get(), 1) == GRADSHM_DAEMON_LOST; }));
  CHECK(failure_of([&] { team[1].pause(); }).code == GRADSHM_DAEMON_LOST);
  CHECK(failure_of([&] { team[1].leave(); }).code == GRADSHM_DAEMON_LOST);
}

TEST_CASE("a round closed before the stop stays readable after it") {
  Team team(floats(1), summing(2));
  check_exact_round({&team[0], &team[1]});
  team.server.stop();
  CHECK(team[0].wait(1) == Outcome::ok);
  CHECK(all_are(team[0], 0, 3));
  CHECK(team[0].round(1).contributors[0] == 3);
  float copy[4] = {};
  CHECK(team[0].read(0, copy, sizeof copy).round == 1);
  CHECK(copy[3] == 3);
}

TEST_CASE("waiting for admission ends with daemon lost when the server stops") {
  auto options = expecting(2);
  options.drain_ns = -1;
  ServerThread server(options);
  std::thread alone([&] { CHECK(attach_failure(server.name(), floats(1), {.timeout = kLong}).code == GRADSHM_DAEMON_LOST); });
  nap();
  server.stop();
  alone.join();
}

TEST_CASE("after a stop an attach says that no server answers") {
  ServerThread server;
  server.stop();
  const Failure refused = attach_failure(server.name(), floats(1));
  CHECK(refused.code == GRADSHM_NO_SERVER);
  CHECK(refused.says("gradshmd --name " + server.name()));
  CHECK(failure_of([&] { static_cast<void>(Observer::observe(server.name())); }).code == GRADSHM_NO_SERVER);
}

TEST_CASE("a stop lets the open round close before it ends, and takes no more workers") {
  Log log;
  auto options = summing(2);
  options.drain_ns = kLongNs;
  log.attach_to(options);
  Team team(floats(1), options);
  fill_all(team[0], 1), fill_all(team[1], 2);
  CHECK(commit(team[0]) == Outcome::ok);
  nap();
  std::thread stopper([&] { team.server.stop(); });
  CHECK(log.comes_to_say("stopping once round 1 has closed"));
  CHECK(attach_failure(team.server.name(), floats(1)).code == GRADSHM_NO_SERVER);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[0], 1) == Outcome::ok);
  CHECK(wait_for(team[1], 1) == Outcome::ok);
  stopper.join();
  CHECK(all_are(team[0], 0, 3));
  static_cast<void>(commit(team[0]));  // wait-free, so it does not ask whether anybody is there
  CHECK(wait_for(team[0], 2) == Outcome::daemon_lost);
}

TEST_CASE("a second stop does not wait for the open round") {
  auto options = server_options();
  options.size = sizeof options;
  const RunDirectory directory;
  const std::string name = fresh_name();
  options.name = name.c_str(), options.drain_ns = kLongNs;
  gradshm_server_t* server = nullptr;
  REQUIRE(gradshm_server_create(&options, &server) == GRADSHM_OK);
  std::thread runner([&] { CHECK(gradshm_server_run(server) == GRADSHM_OK); });
  {
    Worker worker = Worker::attach(name, floats(2));
    CHECK(worker.commit_parameter(0).status() == Outcome::ok);
    gradshm_server_stop(server);
    gradshm_server_stop(server);
    runner.join();
  }
  gradshm_server_destroy(server);
}

TEST_CASE("a second server of one name is refused with the pid of the first") {
  ServerThread server;
  auto options = server_options();
  options.size = sizeof options, options.name = server.name().c_str();
  gradshm_server_t* second = nullptr;
  CHECK(gradshm_server_create(&options, &second) == GRADSHM_ALREADY_RUNNING);
  CHECK(second == nullptr);
  const std::string sentence = gradshm_server_last_error();
  CHECK(sentence.find("pid " + std::to_string(getpid())) != std::string::npos);
  CHECK(sentence.find("'" + server.name() + "'") != std::string::npos);
  Worker worker = Worker::attach(server.name(), floats(1));
  fill_all(worker, 1);
  commit_and_wait(worker);
}

TEST_CASE("a server restarted under the same name takes workers with another layout, and old handles stay lost") {
  ServerThread first(summing(1));
  Worker old = Worker::attach(first.name(), floats(1));
  check_exact_round({&old});
  first.stop();
  auto options = summing(1);
  options.name = first.name().c_str();
  ServerThread second(options);
  CHECK(second.name() == first.name());
  Worker fresh = Worker::attach(second.name(), floats(3));
  check_exact_round({&fresh});
  CHECK(fresh.info().incarnation != old.info().incarnation);
  CHECK(old.wait(1) == Outcome::ok);
  CHECK(failure_of([&] { old.pause(); }).code == GRADSHM_DAEMON_LOST);
}

TEST_CASE("a server leaves nothing behind in its directory") {
  const RunDirectory directory;
  std::string name;
  {
    ServerThread server;
    name = server.name();
    Worker worker = Worker::attach(name, floats(1));
    CHECK(access((directory.path() + "/" + name + "/sock").c_str(), F_OK) == 0);
  }
  CHECK(access((directory.path() + "/" + name).c_str(), F_OK) != 0);
}

TEST_CASE("a server that was never run can be destroyed, and stop and destroy take NULL") {
  const RunDirectory directory;
  auto options = server_options();
  const std::string name = fresh_name();
  options.size = sizeof options, options.name = name.c_str();
  for (int i = 0; i < 2; ++i) {
    gradshm_server_t* server = nullptr;
    CHECK(gradshm_server_create(&options, &server) == GRADSHM_OK);
    gradshm_server_destroy(server);
  }
  gradshm_server_stop(nullptr);
  gradshm_server_destroy(nullptr);
  CHECK(gradshm_server_run(nullptr) == GRADSHM_INVALID);
}

namespace {
// 0 if every call of the child answers as it must; otherwise the number of the call that did not.
[[maybe_unused]] int calls_in_child(Worker& worker, Observer& observer) {
  void* slot = nullptr;
  const void* result = nullptr;
  auto info = detail::sized<gradshm_info_t>();
  gradshm_handle_t* handle = worker.get();
  const int answers[] = {gradshm_commit(handle, GRADSHM_ALL, 0, nullptr, nullptr), gradshm_wait(handle, 1, -1), gradshm_poll(handle, 1),
                         gradshm_slot(handle, 0, &slot), gradshm_result(handle, 0, &result), gradshm_info(handle, &info),
                         gradshm_pause(handle), gradshm_leave(handle), gradshm_wait_admitted(handle, -1, nullptr),
                         gradshm_info(observer.get(), &info)};
  int number = 1;
  for (const int code : answers) {
    if (code != GRADSHM_FORKED) return number;
    ++number;
  }
  const bool says_so = std::string(gradshm_last_error()).find("belongs to the parent process") != std::string::npos;
  {
    const Worker dropped = std::move(worker);
    const Observer gone = std::move(observer);
  }
  return says_so ? 0 : 50;
}
}  // namespace

TEST_CASE("in a forked child the handle answers forked, its detach harms nobody, and the parent goes on") {
#if GRADSHM_TEST_TSAN
  MESSAGE("SKIPPED: TSan does not support a fork with threads");
#else
  Team team(floats(2), summing(2));
  check_exact_round({&team[0], &team[1]});
  Observer observer = Observer::observe(team.server.name());
  Child child([&] { return calls_in_child(team[0], observer); });
  CHECK(child.wait() == 0);
  check_exact_round({&team[0], &team[1]});
  CHECK(team[0].round(2).members[0] == 3);
  CHECK(observer.info().closed_round == 2);
#endif
}

TEST_CASE("a forked child may attach for itself") {
#if GRADSHM_TEST_TSAN
  MESSAGE("SKIPPED: TSan does not support a fork with threads");
#else
  Team team(floats(2), summing(1));
  Child child([&] {
    Worker own = Worker::attach(team.server.name(), floats(2), {.rank = 1});
    fill_all(own, 2);
    return own.commit().wait(kLong) == Outcome::ok && all_are(own, 0, 3) ? 0 : 1;
  });
  fill_all(team[0], 1);
  do commit_and_wait(team[0]);  // until the child was one of the contributors
  while (team[0].round(team[0].info().committed_round).contributor_count < 2);
  CHECK(child.wait() == 0);
#endif
}

}  // namespace gradshm::test
