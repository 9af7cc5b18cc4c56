// From facts to verdicts: would a server start here, and what would it lack?
#pragma once

#include <string>
#include <vector>

#include "doctor_facts.hpp"

namespace gradshm::tools {

enum class Verdict { ok, warn, fail };
[[nodiscard]] const char* to_string(Verdict verdict);  // "OK", "WARN", "FAIL"

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string check;   // "memory"
  std::string found;   // what is there, what is missing
  std::string advice;  // what to do; empty = nothing
};

// FAIL: the server would not start, or could take no worker. Each such rule is one by which gradshmd refuses.
[[nodiscard]] std::vector<Finding> examine(const Facts& facts);
[[nodiscard]] bool would_start(const std::vector<Finding>& findings);

}  // namespace gradshm::tools
