#include "interleave/scenarios.hpp"

#include <bit>

#include "client/snapshot.hpp"
#include "interleave/world.hpp"
#include "protocol/member_word.hpp"
#include "protocol/seqlock.hpp"

namespace gradshm::test {
namespace {

using Threads = std::vector<Explorer::Body>;

Outcome explore(World& world, unsigned members, std::function<void()> prepare, Threads threads, const Limits& limits) {
  Explorer::Program program;
  program.set_up = [&world, members, prepare = std::move(prepare)] {
    world.set_up(members);
    if (prepare) prepare();
  };
  program.threads = std::move(threads);
  program.reset = [&world] { world.tear_down(); };
  return explorer().explore(program, limits);
}

// Writes, commits, waits and reads the sum of `workers`, for rounds [first, last].
void train(World& world, unsigned worker, unsigned workers, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t round = first; round <= last; ++round) {
    world.write_gradient(worker, round);
    std::uint64_t committed = 0;
    expect(world.commit(worker, committed) == Status::ok && committed == round, "a commit was refused, or went to another round");
    expect(world.wait(worker, round) == Status::ok, "a wait for a round that closes did not end well");
    double sum = 0;
    for (unsigned i = 0; i < workers; ++i) sum += gradient(i, round);
    expect(world.result() == sum, "a worker read another sum than that of its round");
  }
}

Outcome rounds(unsigned workers, std::uint64_t last, const Limits& limits) {
  World world(workers, 1);
  Threads threads;
  for (unsigned i = 0; i < workers; ++i) threads.push_back([&world, i, workers, last] { train(world, i, workers, 1, last); });
  threads.push_back([&world, last] { world.serve_until(last); });
  return explore(world, workers, nullptr, std::move(threads), limits);
}

// Everybody abstains: who waits learns that the round was empty.
Outcome abstention(const Limits& limits) {
  World world(1, 1);
  const auto worker = [&] {
    std::uint64_t round = 0;
    expect(world.committers[0]->commit_buckets(0, 1, {0, 0, Presence::none}, round) == Status::ok, "an abstention was refused");
    expect(world.wait(0, 1) == Status::ok, "a wait for an empty round did not end well");
    expect(world.view->round_status(1) == Status::empty, "an empty round's record is not visible behind its close");
  };
  return explore(world, 1, nullptr, {worker, [&] { world.serve_until(1); }}, limits);
}

// In a round the record's fence comes before the close and would hide what the close itself does. Here nothing does.
Outcome close_alone(const Limits& limits) {
  World world(1, 1);
  const auto server = [&] {
    store_relaxed(*reinterpret_cast<std::uint64_t*>(world.arena.result.gradients), std::bit_cast<std::uint64_t>(1.0));
    world.publisher->close(1), world.publisher->wake(world.members);
  };
  const auto worker = [&] {
    expect(world.wait(0, 1) == Status::ok, "a wait for a round that closes did not end well");
    expect(world.result() == 1, "a worker read another sum than that of its round");
  };
  return explore(world, 1, nullptr, {worker, server}, limits);
}

// Worker 1 is ready and is admitted when round 1 closes; it takes part in round 2 and in nothing before.
Outcome newcomer(const Limits& limits) {
  World world(2, 1);
  const auto old_one = [&] {
    train(world, 0, 1, 1, 1);
    train(world, 0, 2, 2, 2);
  };
  const auto new_one = [&] {
    expect(world.words[1].wait_admitted(never()) == Status::ok, "the newcomer was not admitted");
    expect(world.words[1].first_round() == 2, "the newcomer was told another first round");
    train(world, 1, 2, 2, 2);
  };
  return explore(world, 1, nullptr, {old_one, new_one, [&] { world.serve_until(2); }}, limits);
}

// Worker 1 is evicted before it has committed: round 1 closes without it, and it never takes that round's result for its own.
Outcome eviction(const Limits& limits) {
  World world(2, 1);
  const auto server = [&] {
    world.rounds->remove(world.members[1]);
    world.serve_until(1);
  };
  const auto evicted = [&] { expect(world.wait(1, 1) == Status::evicted, "an evicted worker was told something else"); };
  return explore(world, 2, nullptr, {[&] { train(world, 0, 1, 1, 1); }, evicted, server}, limits);
}

// The server stops right after round 1: who waits for it gets it; who waits for round 2 learns that the server is gone.
Outcome stop(const Limits& limits) {
  World world(1, 1);
  const auto server = [&] {
    world.rounds->stop_opening();
    world.serve_until(1);
    world.publisher->state(ServerState::stopped), world.publisher->wake();
  };
  const auto worker = [&] {
    train(world, 0, 1, 1, 1);
    expect(world.wait(0, 2) == Status::daemon_lost, "a worker did not learn that the server has stopped");
  };
  return explore(world, 1, nullptr, {worker, server}, limits);
}

// Round 1 is closed, round 2 is committed: an observer copies while the server sums it and closes.
Outcome observer(const Limits& limits) {
  World world(1, 1);
  const auto prepare = [&] {
    world.write_gradient(0, 1), world.publish(0, 0, 1);
    while (world.rounds->turn()) {}
    world.write_gradient(0, 2), world.publish(0, 0, 2);
  };
  const auto reader = [&] {
    double data = 0;
    ResultInfo info;
    if (world.view->read(0, &data, Deadline::after(0), info) != Status::ok) return;
    expect(data == gradient(0, info.round), "an observer's copy mixes two rounds");
    expect(info.count == 1 && info.weight_sum == 1, "an observer's copy comes with the numbers of no round");
  };
  return explore(world, 1, prepare, {[&] { world.serve_until(2); }, reader}, limits);
}

// Bucket 0 is summed with both workers; then worker 1 goes without having committed bucket 1, and it is summed again. Only that sum is
// one of a closed round.
Outcome redone(const Limits& limits) {
  World world(2, 2);
  const auto prepare = [&] {
    for (unsigned worker = 0; worker < 2; ++worker)
      for (std::size_t bucket = 0; bucket < 2; ++bucket) world.write_gradient(worker, 1, bucket);
    world.publish(0, 0, 1), world.publish(0, 1, 1), world.publish(1, 0, 1);
  };
  const auto server = [&] {
    world.rounds->turn();
    world.rounds->remove(world.members[1]);
    while (world.rounds->turn()) {}
  };
  const auto reader = [&] {
    double data = 0;
    ResultInfo info;
    if (world.view->read(0, &data, Deadline::after(0), info) != Status::ok) return;
    expect(data == gradient(0, 1) && info.count == 1, "an observer took a sum that was made before the set of contributors changed");
  };
  return explore(world, 2, prepare, {server, reader}, limits);
}

// The record of round 65 takes the place of that of round 1.
Outcome records(const Limits& limits) {
  World world(1, 1);
  const auto record = [&](std::uint64_t round, int status) {
    RoundRecord value;
    value.round = round, value.status = status;
    world.publisher->record(value, {static_cast<double>(round)});
  };
  const auto prepare = [&] { record(1, GRADSHM_EMPTY), world.publisher->close(64); };
  const auto weight = [&] {
    double found = 0;
    if (world.view->group_weight(1, 0, found) == Status::ok) expect(found == 1, "a group's weight is another round's");
  };
  const auto status = [&] { expect(world.view->round_status(65) == Status::ok, "a round's status is another round's"); };
  return explore(world, 1, prepare, {[&] { record(65, GRADSHM_OK); }, weight, status}, limits);
}

// Who knows how many events there were finds all of them.
Outcome events(const Limits& limits) {
  World world(1, 1);
  constexpr unsigned kNobodyYet = 2;  // more than there are: nobody is admitted, which would be an event
  const auto server = [&] {
    for (int i = 0; i < 2; ++i) world.publisher->event(EventKind::joined, nullptr, 1, "");
  };
  const auto observer_of_events = [&] {
    const std::uint64_t counted = load_relaxed(world.view->control().words->events);
    Snapshot snapshot;
    take_events(world.view->control(), snapshot);
    expect(snapshot.events.size() >= counted, "an event that was counted is not there");
    for (std::size_t i = 0; i < snapshot.events.size(); ++i) expect(snapshot.events[i].number == i, "an event that was counted is not there");
  };
  return explore(world, kNobodyYet, nullptr, {server, observer_of_events}, limits);
}

struct SmallRecord {
  std::uint64_t sequence = 0, first = 0, second = 0;
};

// Any record under a sequence number: events, member entries.
Outcome seqlock(const Limits& limits) {
  SmallRecord shared;
  const auto writer = [&] {
    publish_record(shared, {0, 1, 1});
    publish_record(shared, {0, 2, 2});
  };
  const auto reader = [&] {
    SmallRecord read;
    if (try_read_record(shared, read)) expect(read.first == read.second, "a copied record mixes two");
  };
  Explorer::Program program;
  program.threads = {writer, reader};
  program.reset = [] { memory().reset(); };
  return explorer().explore(program, limits);
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"seqlock", "a writer of two records, a reader", {}, seqlock},
      {"records", "the server, two readers", {8}, records},
      {"redone", "the server, an observer", {}, redone},
      {"observer", "the server, an observer", {}, observer},
      {"one worker", "a worker, the server; one round", {}, [](const Limits& limits) { return rounds(1, 1, limits); }},
      {"close alone", "a worker, the server", {}, close_alone},
      {"abstention", "a worker, the server; one round", {}, abstention},
      {"events", "the server, an observer", {}, events},
      {"stop", "a worker, the server; one round, then the end", {}, stop},
      {"two rounds", "a worker, the server; two rounds", {}, [](const Limits& limits) { return rounds(1, 2, limits); }},
      {"eviction", "two workers, the server; one is evicted", {}, eviction},
      {"two workers", "two workers, the server; one round", {}, [](const Limits& limits) { return rounds(2, 1, limits); }},
      {"newcomer", "two workers, the server; two rounds", {5}, newcomer},
      {"two workers, two rounds", "two workers, the server; two rounds", {5}, [](const Limits& limits) { return rounds(2, 2, limits); }},
  };
  return all;
}

}  // namespace gradshm::test
