#include "base/text.hpp"

#include <array>
#include <cstdio>

namespace gradshm::core {
namespace {

constexpr char kHex[] = "0123456789abcdef";

struct CodePoint {
  std::size_t length = 0;  // bytes; 0 = malformed
  std::uint32_t value = 0;
};

// Decodes the code point at the front. Ranges: Unicode 15, table 3-7 (well-formed UTF-8 byte sequences).
CodePoint decode(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {};
  std::uint32_t value = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (at(i) & 0x3f);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[length] || value > 0x10ffff || surrogate) return {};
  return {length, value};
}

bool is_control(std::uint32_t value) { return value < 0x20 || (value >= 0x7f && value <= 0x9f); }

// Directional marks, embeddings and isolates, line and paragraph separators (Unicode, Bidi_Control and Zl, Zp), byte order mark.
bool reorders_text(std::uint32_t value) {
  return value == 0x61c || value == 0xfeff || (value >= 0x200e && value <= 0x200f) || (value >= 0x2028 && value <= 0x202e) ||
         (value >= 0x2066 && value <= 0x2069);
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode(text);
    const std::size_t length = point.length == 0 ? 1 : point.length;
    if (point.length == 0 || is_control(point.value) || reorders_text(point.value)) {
      for (const char c : text.substr(0, length)) {
        const auto byte = static_cast<unsigned char>(c);
        out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
      }
    } else {
      out.append(text.front() == '\\' ? std::string_view("\\\\") : text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const CodePoint point = decode(text);
    if (point.length == 0) return false;
    text.remove_prefix(point.length);
  }
  return true;
}

bool has_control(std::string_view text) noexcept {
  while (!text.empty()) {
    const CodePoint point = decode(text);
    if (point.length != 0 && is_control(point.value)) return true;
    text.remove_prefix(point.length == 0 ? 1 : point.length);
  }
  return false;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string plural(std::uint64_t count, std::string_view noun) {
  return format_count(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

std::string format_seconds(std::int64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g s", static_cast<double>(ns) * 1e-9);
  return text.data();
}

std::string format_hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = kHex[value & 15];
  return text;
}

}  // namespace gradshm::core
