// One learner process of two_policies.
#pragma once

#include <cstdint>
#include <string>

namespace policies {

// Where in its round a learner ends itself with SIGKILL.
enum class Place : int { before_commits, between_commits, after_commits };

struct LearnerOptions {
  std::string instance, directory;
  std::uint64_t seed = 1, rounds = 200;
  int rank = -1;
  std::uint64_t die_in_round = 0;  // 0: lives on
  Place die_at = Place::before_commits;
};

// In the directory.
inline constexpr const char* kCheckpoint = "/checkpoint";  // a State, of the newest or nearly newest round
inline constexpr const char* kFinal = "/final.";           // and the rank: the State at the end
inline constexpr const char* kRecords = "/records";        // by learner 0, a line a round: round members contributors (count weight) a policy

// Learners end after `rounds` rounds, but not before all of them took part in so many in a row.
inline constexpr std::uint64_t kRoundsTogether = 20;

// Throws what went wrong.
void learn(const LearnerOptions& options);

}  // namespace policies
