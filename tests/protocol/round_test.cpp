#include "protocol/round.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <map>
#include <set>

using namespace gradshm::core;

namespace {

void commit_all(RoundMachine& machine, unsigned rank) {
  for (std::size_t bucket = 0; bucket < machine.buckets(); ++bucket) machine.arrive(rank, bucket);
}

void reduce_all_ready(RoundMachine& machine) {
  for (std::size_t bucket = 0; bucket < machine.buckets(); ++bucket)
    if (machine.is_ready(bucket)) machine.mark_reduced(bucket);
}

}  // namespace

TEST_CASE("a round without members has nothing ready and does not close") {
  RoundMachine machine(2, 0);
  CHECK_FALSE(machine.is_ready(0));
  CHECK_FALSE(machine.can_close());
  CHECK(machine.open_round() == 1);
}

TEST_CASE("a bucket is ready when its last member has committed it, whatever the other buckets do") {
  RoundMachine machine(2, 0);
  machine.admit(0), machine.admit(5);
  machine.arrive(0, 1);
  CHECK_FALSE(machine.is_ready(1));
  machine.arrive(5, 1);
  CHECK(machine.is_ready(1));
  CHECK_FALSE(machine.is_ready(0));
  machine.mark_reduced(1);
  CHECK_FALSE(machine.is_ready(1));
  CHECK_FALSE(machine.can_close());
}

TEST_CASE("a commit counts once") {
  RoundMachine machine(1, 0);
  machine.admit(3);
  CHECK(machine.arrive(3, 0));
  CHECK_FALSE(machine.arrive(3, 0));
  CHECK(machine.arrivals(3) == 1);
}

TEST_CASE("a member that goes before it has committed everything is out of every bucket, also the reduced ones") {
  RoundMachine machine(2, 0);
  machine.admit(0), machine.admit(1);
  commit_all(machine, 0);
  machine.arrive(1, 0);
  reduce_all_ready(machine);
  CHECK_FALSE(machine.remove(1));
  CHECK(machine.is_ready(0));  // to be reduced again, without member 1
  CHECK(machine.is_ready(1));
  reduce_all_ready(machine);
  CHECK(machine.can_close());
  CHECK(machine.members().size() == 1);
}

TEST_CASE("a member that goes after it has committed everything counts") {
  RoundMachine machine(2, 0);
  machine.admit(0), machine.admit(1);
  commit_all(machine, 1);
  CHECK(machine.remove(1));
  CHECK(machine.members().contains(1));
  commit_all(machine, 0);
  reduce_all_ready(machine);
  CHECK(machine.can_close());
}

TEST_CASE("when all members went the round stays open and whoever enters starts from nothing") {
  RoundMachine machine(1, 4);
  machine.admit(0), machine.admit(1);
  machine.arrive(0, 0);
  machine.remove(1);
  CHECK(machine.is_ready(0));
  machine.mark_reduced(0);
  CHECK(machine.remove(0));  // it had committed everything, so it counts
  CHECK(machine.can_close());
  machine.close();
  machine.admit(2);
  machine.remove(2);
  CHECK_FALSE(machine.can_close());
  CHECK(machine.open_round() == 6);
  machine.admit(2);
  CHECK(machine.arrivals(2) == 0);
  CHECK_FALSE(machine.is_ready(0));
}

TEST_CASE("closing opens the next round without members and without commits") {
  RoundMachine machine(1, 0);
  machine.admit(9);
  machine.arrive(9, 0);
  machine.mark_reduced(0);
  machine.close();
  CHECK(machine.open_round() == 2);
  CHECK(machine.members().empty());
  machine.admit(9);
  CHECK(machine.arrivals(9) == 0);
  CHECK_FALSE(machine.is_ready(0));
}

// Against the rule itself, over random orders of commits, departures and reductions: a round closes only when every bucket was last
// reduced with one set, and that set is: members that are still in, or had committed everything when they went.
TEST_CASE("whatever the order of events, all buckets of a closed round have one set of contributors") {
  CHECK(rc::check([] {
    const auto buckets = *rc::gen::inRange<std::size_t>(1, 4);
    const auto members = *rc::gen::inRange<unsigned>(1, 6);
    RoundMachine machine(buckets, 0);
    std::map<unsigned, std::set<std::size_t>> committed;
    std::set<unsigned> expected;
    std::vector<std::set<unsigned>> reduced(buckets);
    for (unsigned rank = 0; rank < members; ++rank) machine.admit(rank), expected.insert(rank);
    for (int step = 0; step < 200 && !machine.can_close() && !expected.empty(); ++step) {
      const auto rank = *rc::gen::inRange<unsigned>(0, members);
      const auto bucket = *rc::gen::inRange<std::size_t>(0, buckets);
      const int what = *rc::gen::inRange(0, 20);
      if (what == 0 && machine.members().contains(rank)) {
        if (committed[rank].size() < buckets) expected.erase(rank);
        machine.remove(rank);
      } else if (what < 12 && machine.members().contains(rank)) {
        machine.arrive(rank, bucket), committed[rank].insert(bucket);
      } else if (machine.is_ready(bucket)) {
        machine.mark_reduced(bucket), reduced[bucket] = expected;
        for (const unsigned one : expected) RC_ASSERT(committed[one].count(bucket) == 1);
      }
    }
    if (!machine.can_close()) return;
    for (const auto& set : reduced) RC_ASSERT(set == expected);
    for (const unsigned one : expected) RC_ASSERT(machine.members().contains(one));
    RC_ASSERT(machine.members().size() == expected.size());
  }));
}
