#include "fashion/progress.hpp"

#include <doctest/doctest.h>

TEST_CASE("the bar fills with the rounds") {
  CHECK(fashion::progress_bar(0, 10, 5) == "[.....]");
  CHECK(fashion::progress_bar(5, 10, 4) == "[##..]");
  CHECK(fashion::progress_bar(9, 10, 4) == "[###.]");
  CHECK(fashion::progress_bar(10, 10, 4) == "[####]");
  CHECK(fashion::progress_bar(0, 0, 3) == "[###]");
}

TEST_CASE("the text says rounds, loss and speed") {
  CHECK(fashion::progress_text({.round = 7, .rounds = 1872, .loss = 0.4321, .samples_per_second = 41234.4}) ==
        "round 7 of 1872, loss 0.432, 41234 samples/s");
}
