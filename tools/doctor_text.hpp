// The doctor's findings as lines, and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "doctor_checks.hpp"

namespace gradshm::tools {

// A line a finding, its advice below it, and the sum of it all.
[[nodiscard]] std::vector<std::string> doctor_lines(const std::vector<Finding>& findings, std::size_t width, bool color);
[[nodiscard]] std::string doctor_json_line(const std::string& instance, const std::vector<Finding>& findings);

}  // namespace gradshm::tools
