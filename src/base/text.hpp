// Text for people: escaping what came from elsewhere, and byte counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradshm::core {

// Reads as one line on any terminal: control characters (DEL and C1 too), characters that reorder text, and bytes that are no UTF-8
// become \xNN, backslash becomes \\.
[[nodiscard]] std::string escape(std::string_view text);

// Well-formed UTF-8 without surrogates and overlong forms.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

// Has a byte below 0x20, 0x7f, or a C1 control (U+0080 to U+009F).
[[nodiscard]] bool has_control(std::string_view text) noexcept;

// "21.8 MB", "512 B"; decimal units.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

// "1,234,567"
[[nodiscard]] std::string format_count(std::uint64_t count);

// "1 bucket", "1,234 buckets"
[[nodiscard]] std::string plural(std::uint64_t count, std::string_view noun);

// "1.5 s", "0.25 s"
[[nodiscard]] std::string format_seconds(std::int64_t ns);

// 16 hexadecimal digits.
[[nodiscard]] std::string format_hex(std::uint64_t value);

}  // namespace gradshm::core
