// The rules for names, and how messages show them. Inside this layer only.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"
#include "base/text.hpp"
#include "layout/parameter.hpp"

namespace gradshm::core {

// In quotes and escaped; of what is too long for a name, only the beginning.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShownBytes = 80;
  const bool is_long = text.size() > kMaxNameBytes;
  return "'" + escape(is_long ? text.substr(0, kShownBytes) : text) + (is_long ? "...'" : "'");
}

// Why `text` is no name ("is empty", "has control characters", ...); empty if it is one.
[[nodiscard]] std::string fault_of_name(std::string_view text);

// The bytewise smallest of name and aliases, whose hash is the id.
[[nodiscard]] std::string_view key_name(const Parameter& parameter) noexcept;

}  // namespace gradshm::core
