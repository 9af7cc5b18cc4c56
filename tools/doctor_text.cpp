#include "doctor_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli_table.hpp"
#include "cli_text.hpp"

namespace gradshm::tools {
using nlohmann::ordered_json;
namespace {

constexpr std::size_t kVerdictColumns = 6, kCheckColumns = 15;

std::string padded(std::string text, std::size_t columns) {
  text.resize(std::max(text.size() + 1, columns), ' ');
  return text;
}

std::string painted(const std::string& text, Verdict verdict, bool color) {
  constexpr const char* kCodes[] = {"\x1b[32m", "\x1b[33m", "\x1b[1;31m"};
  return color ? kCodes[static_cast<int>(verdict)] + text + "\x1b[0m" : text;
}

// `first` stands before the first line, as many blanks before the others. A narrow terminal wraps for itself.
void append_wrapped(std::vector<std::string>& lines, const std::string& first, std::size_t indent, const std::string& text, std::size_t width) {
  const std::size_t room = width == kUnlimited || width < indent + 30 ? kUnlimited : width - indent;
  std::string start = first;
  for (const std::string& line : wrap_words(text, room)) lines.push_back(start + line), start.assign(indent, ' ');
}

std::size_t count(const std::vector<Finding>& findings, Verdict verdict) {
  return static_cast<std::size_t>(std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) { return finding.verdict == verdict; }));
}

}  // namespace

std::vector<std::string> doctor_lines(const std::vector<Finding>& findings, std::size_t width, bool color) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    const std::string head = painted(padded(to_string(finding.verdict), kVerdictColumns), finding.verdict, color) + padded(finding.check, kCheckColumns);
    append_wrapped(lines, head, kVerdictColumns + kCheckColumns, finding.found, width);
    if (!finding.advice.empty()) append_wrapped(lines, std::string(kVerdictColumns, ' ') + "-> ", kVerdictColumns + 3, finding.advice, width);
  }
  const bool starts = would_start(findings);
  lines.push_back(painted(starts ? "a server would start here" : "a server would NOT start here", starts ? Verdict::ok : Verdict::fail, color) + ": " +
                  core::plural(findings.size(), "check") + ", " + core::plural(count(findings, Verdict::warn), "warning") + ", " +
                  core::plural(count(findings, Verdict::fail), "failure"));
  return lines;
}

std::string doctor_json_line(const std::string& instance, const std::vector<Finding>& findings) {
  ordered_json checks = ordered_json::array();
  for (const Finding& finding : findings)
    checks.push_back({{"check", finding.check}, {"verdict", to_string(finding.verdict)}, {"found", finding.found}, {"advice", finding.advice}});
  const ordered_json document{{"schema", 1},
                              {"instance", core::escape(instance)},
                              {"would_start", would_start(findings)},
                              {"warnings", count(findings, Verdict::warn)},
                              {"failures", count(findings, Verdict::fail)},
                              {"checks", checks}};
  return document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gradshm::tools
