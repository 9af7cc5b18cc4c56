#include "memory/space.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <string>

#include "base/status.hpp"

using namespace gradshm::core;

TEST_CASE("free space is known and what limits it is named") {
  const Space space = free_space();
  CHECK(space.bytes > 0);
  CHECK(space.bytes < UINT64_MAX);
  CHECK_FALSE(space.limited_by.empty());
}

TEST_CASE("too large a wish is refused with the bytes wanted and free") {
  setenv("GRADSHM_TEST_FREE_BYTES", "1000", 1);
  CHECK_NOTHROW(require_space(1000, 10, "a thing"));
  try {
    require_space(1001, 10, "a thing");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.status() == Status::no_space);
    const std::string text = error.what();
    CHECK(text.find("a thing needs 1,001 bytes, 1,000 are free (GRADSHM_TEST_FREE_BYTES)") != std::string::npos);
  }
  unsetenv("GRADSHM_TEST_FREE_BYTES");
}

TEST_CASE("a file larger than RLIMIT_FSIZE is refused before the kernel sends SIGXFSZ") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_NOTHROW(require_space(4096, 4096, "a thing"));
  CHECK_THROWS_AS(require_space(4097, 4097, "a thing"), Error);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

TEST_CASE("every limit is listed, and free space is the smallest") {
  setenv("GRADSHM_TEST_FREE_BYTES", "4096", 1);
  const std::vector<Space> limits = space_limits();
  const Space least = free_space();
  unsetenv("GRADSHM_TEST_FREE_BYTES");
  REQUIRE(limits.size() >= 2);
  CHECK(limits.front().limited_by == "free memory");
  CHECK(limits.back().limited_by == "GRADSHM_TEST_FREE_BYTES");
  for (const Space& limit : limits) CHECK(limit.bytes >= least.bytes);
}
