// Rows and columns on a line of limited width.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gradshm::tools {

struct Column {
  enum class Align { left, right };
  std::string title;
  Align align = Align::right;
  int keep = 0;            // where the line is too narrow the column with the lowest number goes first
  std::size_t least = 0;   // above 0: may be clipped down to this width before any column goes
};

inline constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);  // as a width

using Row = std::vector<std::string>;

// The titles, then a line a row; none is wider than `width`. Rows have as many cells as there are columns.
[[nodiscard]] std::vector<std::string> format_table(const std::vector<Column>& columns, const std::vector<Row>& rows, std::size_t width);
[[nodiscard]] std::string joined(const std::vector<std::string>& lines);  // a newline behind each

}  // namespace gradshm::tools
