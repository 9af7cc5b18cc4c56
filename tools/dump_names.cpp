#include <algorithm>
#include <numeric>

#include "dump.hpp"

namespace gradshm::tools {
namespace {

constexpr std::size_t kNamed = 3;

// Edits (insert, delete, replace a byte) from one to the other.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

struct Candidate {
  std::size_t score = 0;
  std::string name;
};

}  // namespace

std::vector<std::string> closest_names(const core::Layout& layout, const std::string& name) {
  std::vector<Candidate> best;  // at most kNamed, best first; of equal ones the earlier registered
  const auto consider = [&](const std::string& other) {
    const bool full = best.size() == kNamed;
    const std::size_t least = std::max(name.size(), other.size()) - std::min(name.size(), other.size());
    const bool contains = !name.empty() && other.find(name) != std::string::npos;  // a part of a name is likely meant
    if (!contains && full && least >= best.back().score) return;                    // no need to count
    const std::size_t score = contains ? 1 : distance(name, other);
    if (full && score >= best.back().score) return;
    if (full) best.pop_back();
    const auto place = std::upper_bound(best.begin(), best.end(), score, [](std::size_t value, const Candidate& candidate) { return value < candidate.score; });
    best.insert(place, {score, other});
  };
  for (const core::Parameter& parameter : layout.parameters()) {
    consider(parameter.name);
    for (const std::string& alias : parameter.aliases) consider(alias);
  }
  std::vector<std::string> names;
  for (Candidate& candidate : best) names.push_back(std::move(candidate.name));
  return names;
}

}  // namespace gradshm::tools
