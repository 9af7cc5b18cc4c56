// What stands behind an option of gradshmd or of gradshm run: what one of them refuses, so does the other, in the same words.
#pragma once

#include <CLI/CLI.hpp>

#include <cctype>
#include <map>
#include <string>

namespace gradshm::tools {

// CLI11 would read "-5" into an unsigned number, and NaN is in no range and out of none.
inline std::string check_number(const std::string& text, const std::string& wanted) {
  const bool begins = !text.empty() && (std::isdigit(static_cast<unsigned char>(text.front())) != 0 || text.front() == '.');
  return begins ? "" : "takes " + wanted + ", not '" + text + "'";
}

// 5, 500ms, 2min: becomes a number of seconds, at most `most`.
inline CLI::Validator seconds_up_to(double most) {
  return CLI::Validator([most](std::string& text) {
    const std::map<std::string, double> units{{"ms", 1e-3}, {"s", 1}, {"min", 60}};
    std::string fault = check_number(text, "a time of 0 or more (5, 500ms, 2min)");
    if (fault.empty()) fault = CLI::AsNumberWithUnit(units)(text);
    return fault.empty() ? CLI::Range(0.0, most)(text) : fault;
  }, "TIME", "TIME");
}

// 64MB, 2GiB: becomes a number of bytes.
inline CLI::Validator bytes() {
  return CLI::Validator([](std::string& text) {
    constexpr std::size_t kMostDigits = 18;  // CLI11 takes whatever is beyond 64 bits for the largest number
    std::string fault = check_number(text, "a number of bytes, 0 or more (1000, 64MB, 2GiB)");
    if (fault.empty() && text.find_first_not_of("0123456789") > kMostDigits) fault = text.size() > kMostDigits ? "'" + text + "' is too large" : "";
    return fault.empty() ? CLI::AsSizeValue(false)(text) : fault;
  }, "SIZE", "SIZE");
}

constexpr double kMostSeconds = 1e7, kMostDrainSeconds = 86400;

}  // namespace gradshm::tools
