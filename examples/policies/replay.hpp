// The run of two_policies once more, in one process and without gradshm, from the records of its rounds.
#pragma once

#include "model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace policies {

struct Record {
  std::uint64_t round = 0, members = 0, contributors = 0;  // bitmaps by rank
  std::array<unsigned, kPolicies> count{};                 // learners in the result
  std::array<double, kPolicies> weight{};                  // their samples
};

// Throws std::runtime_error where a record contradicts itself or the one before: gaps, contributors that are no members.
[[nodiscard]] std::vector<Record> read_records(const std::string& path);
// Throws where a record counts other learners or samples than its contributors must have had.
[[nodiscard]] State replay(std::uint64_t seed, const std::vector<Record>& records);

}  // namespace policies
