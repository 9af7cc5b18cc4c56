// Ready, pause, resume, partial workers, several handles.
#include "server/workers.hpp"

namespace gradshm::test {
namespace {

Worker attach_partial(const std::string& name, const Layout& layout, int rank) {
  return Worker::attach(name, layout, {.rank = rank, .partial = true, .wait_for_admission = false});
}

// p1 alone, out of floats(3).
Layout only_p1() {
  Layout layout;
  layout.add("p1", DType::f32, {4});
  return layout;
}

}  // namespace

TEST_CASE("a worker that is not ready is not waited for, and takes part once it is") {
  Team team(floats(1), summing(1));
  Worker late = Worker::attach(team.server.name(), floats(1), {.rank = 1, .ready = false});
  check_exact_round({&team[0]});
  check_exact_round({&team[0]});
  CHECK(commit(late) == Outcome::not_member);
  late.ready();
  late.ready();
  check_exact_round({&team[0]});
  CHECK(late.wait_admitted(kLong) == 4);
  check_exact_round({&team[0], &late});
}

TEST_CASE("workers that are not ready do not open the first round") {
  ServerThread server(summing(1));
  Worker worker = Worker::attach(server.name(), floats(1), {.ready = false});
  CHECK(worker.info().members == 0);
  CHECK(failure_of([&] { worker.wait_admitted(10ms); }).code == GRADSHM_TIMEOUT);
  worker.ready();
  CHECK(worker.wait_admitted(kLong) == 1);
  CHECK(worker.info().members == 1);
  check_exact_round({&worker});
}

TEST_CASE("a paused worker keeps rank and slot and is not waited for until it resumes") {
  Team team(floats(1), summing(2));
  check_exact_round({&team[0], &team[1]});
  const float* before = team[1].slot<float>("p0").data();
  team[1].pause();
  CHECK(commit(team[1]) == Outcome::not_member);
  check_exact_round({&team[0]});
  CHECK(attach_failure(team.server.name(), floats(1), unadmitted(1)).code == GRADSHM_RANK_TAKEN);
  team[1].resume();
  check_exact_round({&team[0]});
  CHECK(team[1].wait_admitted(kLong) == 4);
  CHECK(team[1].rank() == 1);
  CHECK(team[1].slot<float>("p0").data() == before);
  check_exact_round({&team[0], &team[1]});
  CHECK(team[0].round(3).members[0] == 1);
  CHECK(team[0].round(4).members[0] == 3);
}

TEST_CASE("a pause in mid-round leaves the unfinished contribution out and lets the round close") {
  Team team(floats(2), summing(2, kOneEach));
  fill_all(team[0], 1), fill_all(team[1], 100);
  CHECK(team[1].commit_bucket(0).status() == Outcome::ok);
  CHECK(commit(team[0]) == Outcome::ok);
  team[1].pause();
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 1));
  CHECK(all_are(team[0], 1, 1));
}

TEST_CASE("pause and resume within one round keep what was committed to it in full") {
  Team team(floats(1), summing(2));
  fill_all(team[0], 1), fill_all(team[1], 100);
  CHECK(commit(team[1]) == Outcome::ok);
  nap();
  team[1].pause();
  team[1].resume();
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], 0, 101));
  CHECK(team[1].wait_admitted(kLong) == 2);
  check_exact_round({&team[0], &team[1]});
}

TEST_CASE("the only member may pause and resume, and goes on with the same round") {
  Team team(floats(1), summing(1));
  team[0].pause();
  CHECK(team[0].info().members == 0);
  team[0].resume();
  CHECK(team[0].wait_admitted(kLong) == 1);
  check_exact_round({&team[0]});
}

TEST_CASE("a partial worker hands in its parameters and the others are absent from it for good") {
  Team team(floats(3), summing(1, kOneEach));
  Worker part = attach_partial(team.server.name(), only_p1(), 1);
  check_exact_round({&team[0]});
  CHECK(part.wait_admitted(kLong) == 2);
  for (int round = 0; round < 3; ++round) {
    fill_all(team[0], 1), fill(part, 1, 10);
    CHECK(commit(team[0]) == Outcome::ok);
    CHECK(commit(part) == Outcome::ok);
    CHECK(wait_for(part) == Outcome::ok);
    CHECK(all_are(part, 0, 1));
    CHECK(all_are(part, 1, 11));
    CHECK(part.result_info("p1").count == 2);
    CHECK(part.result_info("p2").count == 1);
    CHECK(wait_for(team[0]) == Outcome::ok);
  }
  CHECK(part.round(4).contributors[0] == 3);
}

TEST_CASE("a partial worker shares a bucket with parameters that it does not have") {
  Team team(floats(3), summing(1));
  CHECK(team[0].info().buckets == 1);
  Worker part = attach_partial(team.server.name(), only_p1(), 1);
  check_exact_round({&team[0]});
  CHECK(part.wait_admitted(kLong) == 2);
  fill_all(team[0], 1), fill(part, 1, 10);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(part.commit_parameter(1).status() == Outcome::ok);
  CHECK(wait_for(part) == Outcome::ok);
  CHECK(all_are(part, 0, 1));
  CHECK(all_are(part, 1, 11));
  CHECK(part.result_info("p0").count == 1);
  CHECK(part.result_info("p1").count == 2);
}

TEST_CASE("a partial worker may not touch parameters that it did not name") {
  Team team(floats(3), summing(1));
  Worker part = attach_partial(team.server.name(), only_p1(), 1);
  check_exact_round({&team[0]});
  CHECK(part.wait_admitted(kLong) == 2);
  CHECK(part.parameter("p0").mine == 0);
  CHECK(part.parameter("p1").mine == 1);
  const Failure slot = failure_of([&] { static_cast<void>(part.slot<float>("p0")); });
  CHECK(slot.code == GRADSHM_INVALID);
  CHECK(slot.says("'p0' is not one that this partial worker registered"));
  CHECK(part.commit_parameter(0).status() == Outcome::invalid);
  CHECK(std::string(gradshm_last_error()).find("partial worker") != std::string::npos);
}

TEST_CASE("a partial worker cannot give the layout, nor name a parameter that it lacks") {
  ServerThread server;
  const AttachOptions partial{.partial = true, .wait_for_admission = false};
  CHECK(attach_failure(server.name(), only_p1(), partial).code == GRADSHM_BAD_LAYOUT);
  Worker complete = Worker::attach(server.name(), floats(3));
  Layout unknown;
  unknown.add("p1", DType::f32, {4}).add("p9", DType::f32, {4});
  const Failure refused = attach_failure(server.name(), unknown, partial);
  CHECK(refused.code == GRADSHM_LAYOUT_MISMATCH);
  CHECK(refused.says("'p9'"));
  check_exact_round({&complete});
}

TEST_CASE("an idle partial worker does not hold up a stop as if it had committed") {
  Log log;
  auto options = summing(1, kOneEach);
  log.attach_to(options);
  Team team(floats(3), options);
  Worker part = attach_partial(team.server.name(), only_p1(), 1);
  check_exact_round({&team[0]});
  CHECK(part.wait_admitted(kLong) == 2);
  nap();
  team.server.stop();
  CHECK(log.text().find("stopping\n") != std::string::npos);
  CHECK(log.text().find("stopping once round 2 has closed") == std::string::npos);
}

TEST_CASE("one thread holds workers of several servers, and two threads are two workers") {
  ServerThread first(summing(1)), second(summing(2));
  Worker here = Worker::attach(first.name(), floats(1)), there = Worker::attach(second.name(), floats(2), unadmitted(0));
  std::thread other([&] {
    Worker worker = Worker::attach(second.name(), floats(2), {.rank = 1});
    fill_all(worker, 2);
    commit_and_wait(worker);
    CHECK(all_are(worker, 1, 3));
  });
  CHECK(there.wait_admitted(kLong) == 1);
  check_exact_round({&here});
  fill_all(there, 1);
  commit_and_wait(there);
  CHECK(all_are(there, 0, 3));
  other.join();
  check_exact_round({&here});
  CHECK(here.info().incarnation != there.info().incarnation);
}

TEST_CASE("after a pause in mid-round and a resume into the same round nothing of before the pause counts") {
  gradshm_server_options_t options = summing(1);
  options.bucket_bytes = kOneEach;
  Team team(floats(2), options);
  Worker& worker = team[0];
  worker.slot<float>(0)[0] = 1;
  CHECK(worker.commit_bucket(0, {.weight = 2}).status() == Outcome::ok);
  worker.pause();
  worker.resume();
  CHECK(worker.wait_admitted(60s) == 1);
  worker.slot<float>(0)[0] = 100;
  worker.slot<float>(1)[0] = 100;
  const Round round = worker.commit({.weight = 3});
  CHECK(round.wait(60s) == Outcome::ok);
  CHECK(worker.result<float>(0)[0] == 100);
  CHECK(worker.result<float>(1)[0] == 100);
  CHECK(worker.result_info(0).weight_sum == 3);
  CHECK(worker.round_group_weight(1, 0) == 3);
}

TEST_CASE("a parameter marked before a pause can be committed again after it") {
  gradshm_server_options_t options = summing(1);
  options.bucket_bytes = 1 << 20;
  Team team(floats(2), options);
  Worker& worker = team[0];
  CHECK(worker.commit_parameter(0).status() == Outcome::ok);
  worker.pause();
  worker.resume();
  CHECK(worker.wait_admitted(60s) == 1);
  CHECK(worker.commit_parameter(0).status() == Outcome::ok);
  CHECK(worker.commit_parameter(1).wait(60s) == Outcome::ok);
  CHECK(worker.result_info(0).count == 1);
}

}  // namespace gradshm::test
