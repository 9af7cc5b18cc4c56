// A beacon as JSON, for `gradshm ls` and for a dead server in gradshm-top.
#pragma once

#include <nlohmann/json.hpp>

#include <cstring>
#include <string>

#include "base/status.hpp"
#include "memory/beacon.hpp"

namespace gradshm::tools {

[[nodiscard]] nlohmann::ordered_json beacon_json(const core::BeaconData& beacon, bool alive);

// What is known of a server that did not answer: the error, with where one of that name runs or ran, if its beacon says so.
// daemon_lost in place of no_server if one was killed in our own directory.
[[nodiscard]] core::Error explain_absence(const std::string& instance, const core::Error& error);

// The C string in a fixed array that may lack its final zero.
template <std::size_t N>
[[nodiscard]] std::string text_of(const char (&array)[N]) {
  return {array, strnlen(array, N)};
}

}  // namespace gradshm::tools
