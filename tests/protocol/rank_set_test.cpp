#include "protocol/rank_set.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "protocol/member_word.hpp"

using namespace gradshm::core;

TEST_CASE("a rank set keeps all 256 ranks apart and visits them in order") {
  RankSet set;
  CHECK(set.empty());
  for (const unsigned rank : {255u, 0u, 64u, 63u, 128u}) set.insert(rank);
  std::vector<unsigned> seen;
  set.for_each([&](unsigned rank) { seen.push_back(rank); });
  CHECK(seen == std::vector<unsigned>{0, 63, 64, 128, 255});
  CHECK(set.size() == 5);
  set.erase(64);
  CHECK_FALSE(set.contains(64));
  CHECK(set.contains(63));
}

TEST_CASE("includes is about every member") {
  RankSet large, small;
  large.insert(1), large.insert(200);
  small.insert(200);
  CHECK(large.includes(small));
  CHECK_FALSE(small.includes(large));
  CHECK(small.includes(RankSet()));
}

TEST_CASE("a member word of another generation or state is another word") {
  const std::uint64_t word = member_word(7, MemberState::member);
  CHECK(generation_of(word) == 7);
  CHECK(state_of(word) == MemberState::member);
  CHECK(word != member_word(8, MemberState::member));
  CHECK(word != member_word(7, MemberState::gone));
}
