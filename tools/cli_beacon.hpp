// A beacon as JSON, for `gradshm ls` and for a dead server in gradshm-top.
#pragma once

#include <nlohmann/json.hpp>

#include <cstring>
#include <string>

#include "memory/beacon.hpp"

namespace gradshm::tools {

[[nodiscard]] nlohmann::ordered_json beacon_json(const core::BeaconData& beacon, bool alive);

// The C string in a fixed array that may lack its final zero.
template <std::size_t N>
[[nodiscard]] std::string text_of(const char (&array)[N]) {
  return {array, strnlen(array, N)};
}

}  // namespace gradshm::tools
