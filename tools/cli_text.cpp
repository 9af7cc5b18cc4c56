#include "cli_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"

namespace gradshm::tools {
namespace {

struct Character {
  std::size_t bytes = 1;
  char32_t value = 0;
};

Character front(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (bytes == 1 || bytes > text.size()) return {1, lead};
  char32_t value = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  return {bytes, value};
}

struct Range {
  char32_t first, last;
};

template <std::size_t N>
bool lies_in(const std::array<Range, N>& ranges, char32_t value) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) { return value >= range.first && value <= range.last; });
}

// The blocks that labels are likely to hold, of Unicode's EastAsianWidth (W, F); wcwidth would want a locale.
constexpr std::array<Range, 10> kWide{{{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
                                       {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}}};
constexpr std::array<Range, 6> kZero{{{0x300, 0x36f}, {0x483, 0x489}, {0x1ab0, 0x1aff}, {0x200b, 0x200d}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
// Marks, embeddings, overrides and isolates of direction; separators of lines and paragraphs.

std::size_t width_of(char32_t value) { return lies_in(kZero, value) ? 0 : lies_in(kWide, value) ? 2 : 1; }

std::string two_units(std::uint64_t major, const char* major_unit, std::uint64_t minor, const char* minor_unit) {
  return std::to_string(major) + " " + major_unit + " " + std::to_string(minor) + " " + minor_unit;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character character = front(text);
    columns += width_of(character.value);
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string clip(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  std::size_t used = 0, bytes = 0;
  while (bytes < text.size()) {
    const Character character = front(text.substr(bytes));
    if (used + width_of(character.value) + 1 > columns) break;
    used += width_of(character.value);
    bytes += character.bytes;
  }
  return std::string(text.substr(0, bytes)) + "~";
}

std::vector<std::string> wrap(const std::vector<std::string>& pieces, std::string_view separator, std::size_t width) {
  std::vector<std::string> lines;
  for (const std::string& piece : pieces) {
    const std::string clipped = clip(piece, width);
    const bool fits = !lines.empty() && columns_of(lines.back()) + separator.size() + columns_of(clipped) <= width;
    if (fits) lines.back().append(separator).append(clipped);
    else lines.push_back(clipped);
  }
  return lines;
}

std::vector<std::string> wrap_words(std::string_view sentence, std::size_t width) {
  std::vector<std::string> words;
  while (!sentence.empty()) {
    const std::size_t space = std::min(sentence.find(' '), sentence.size());
    words.emplace_back(sentence.substr(0, space));
    sentence.remove_prefix(std::min(space + 1, sentence.size()));
  }
  return wrap(words, " ", width);
}

std::string format_duration(std::uint64_t ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::uint64_t seconds = ns / kSecond, minutes = seconds / 60, hours = minutes / 60;
  if (hours >= 24) return two_units(hours / 24, "d", hours % 24, "h");
  if (hours > 0) return two_units(hours, "h", minutes % 60, "min");
  if (seconds >= 100) return two_units(minutes, "min", seconds % 60, "s");
  const auto in = [&](double unit, const char* name) {
    const double value = static_cast<double>(ns) / unit;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), value < 9.95 ? "%.1f %s" : "%.0f %s", value, name);
    return std::string(text.data());
  };
  if (ns < 999'500) return in(1e3, "us");
  return ns < kSecond - 500'000 ? in(1e6, "ms") : in(1e9, "s");
}

std::string format_number(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

std::vector<int> ranks_of(const std::uint64_t (&bitmap)[core::kRankWords]) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < core::kMaxWorkers; ++rank)
    if ((bitmap[rank / 64] >> (rank % 64) & 1) != 0) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::string format_ranks(const std::vector<int>& ascending) {
  std::string text;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(ascending[i]);
    if (end - i > 1) text += "-" + std::to_string(ascending[end - 1]);
    i = end;
  }
  return text.empty() ? "none" : text;
}

}  // namespace gradshm::tools
