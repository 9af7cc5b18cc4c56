#include "base/checked.hpp"

#include <doctest/doctest.h>

#include "base/clock.hpp"

using namespace gradshm::core;

TEST_CASE("sums and products that do not fit in 64 bits are nothing") {
  CHECK(checked_add(UINT64_MAX - 1, 1) == UINT64_MAX);
  CHECK_FALSE(checked_add(UINT64_MAX, 1).has_value());
  CHECK(checked_mul(1ull << 31, 1ull << 32) == 1ull << 63);
  CHECK_FALSE(checked_mul(1ull << 32, 1ull << 32).has_value());
}

TEST_CASE("align_up gives the next multiple, and a multiple itself") {
  CHECK(align_up(0, 64) == 0);
  CHECK(align_up(1, 64) == 64);
  CHECK(align_up(64, 64) == 64);
  CHECK(align_up(65, 4096) == 4096);
}

TEST_CASE("a range lies within a total only if it neither starts nor ends beyond it") {
  CHECK(lies_within(0, 10, 10));
  CHECK(lies_within(10, 0, 10));
  CHECK_FALSE(lies_within(11, 0, 10));
  CHECK_FALSE(lies_within(1, 10, 10));
  CHECK_FALSE(lies_within(UINT64_MAX, 2, 10));
}

TEST_CASE("a negative time-out never passes and a zero one has passed") {
  CHECK(Deadline::after(-1).is_never());
  CHECK_FALSE(Deadline::after(-1).passed());
  CHECK(Deadline::after(INT64_MAX).is_never());
  CHECK(Deadline::after(0).passed());
  CHECK(Deadline::after(0).remaining_ns() == 0);
  CHECK_FALSE(Deadline::after(3'600'000'000'000).passed());
  CHECK(Deadline::after(3'600'000'000'000).remaining_ns() > 0);
}
