// Text for terminals: widths as shown, clipping, wrapping, durations. Everything here takes valid UTF-8: escape() first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/shared.hpp"

namespace gradshm::tools {

// Columns on a terminal: East Asian wide characters take 2, combining and invisible ones 0.
[[nodiscard]] std::size_t columns_of(std::string_view text);

// At most `columns` wide; '~' stands last where something was cut off.
[[nodiscard]] std::string clip(std::string_view text, std::size_t columns);

// Pieces joined by `separator`, broken between pieces so that no line is wider than `width`; longer pieces are clipped.
[[nodiscard]] std::vector<std::string> wrap(const std::vector<std::string>& pieces, std::string_view separator, std::size_t width);

// A sentence, broken at its spaces.
[[nodiscard]] std::vector<std::string> wrap_words(std::string_view sentence, std::size_t width);

// Two digits or two units: "850 us", "2.1 s", "3 min 12 s", "4 d 2 h".
[[nodiscard]] std::string format_duration(std::uint64_t ns);

// "48.2", "812", "1.2e+09"; "nan" and "inf" in words.
[[nodiscard]] std::string format_number(double value, int digits = 3);

// 0 where `earlier` is later: the two come from different processes.
[[nodiscard]] constexpr std::uint64_t elapsed_ns(std::uint64_t now, std::uint64_t earlier) { return now > earlier ? now - earlier : 0; }

[[nodiscard]] std::vector<int> ranks_of(const std::uint64_t (&bitmap)[core::kRankWords]);
[[nodiscard]] std::string format_ranks(const std::vector<int>& ascending);  // "0-3,7"; "none"

}  // namespace gradshm::tools
