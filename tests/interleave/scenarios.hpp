// What the threads of the protocol do together, each on the real code, and what may never come of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "interleave/explorer.hpp"

namespace gradshm::test {

struct Scenario {
  std::string name;
  std::string threads;
  Limits limits;
  std::function<Outcome(const Limits&)> run;
};

[[nodiscard]] const std::vector<Scenario>& scenarios();

}  // namespace gradshm::test
