#include "cli_table.hpp"

#include <algorithm>

#include "cli_text.hpp"

namespace gradshm::tools {
namespace {

constexpr std::size_t kGap = 2;

struct Fitted {
  std::size_t column = 0, width = 0;
};

std::vector<Fitted> natural_widths(const std::vector<Column>& columns, const std::vector<Row>& rows) {
  std::vector<Fitted> fitted;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::size_t width = columns_of(columns[i].title);
    for (const Row& row : rows) width = std::max(width, columns_of(row[i]));
    fitted.push_back({i, width});
  }
  return fitted;
}

// How much wider than `width` the columns are; 0 = they fit.
std::size_t excess(const std::vector<Fitted>& fitted, std::size_t width) {
  std::size_t total = kGap * (fitted.size() - 1);
  for (const Fitted& fit : fitted) total += fit.width;
  return total > width ? total - width : 0;
}

std::vector<Fitted> clipped(const std::vector<Column>& columns, std::vector<Fitted> fitted, std::size_t width) {
  for (Fitted& fit : fitted) {
    const std::size_t least = columns[fit.column].least;
    if (least > 0 && fit.width > least) fit.width -= std::min(excess(fitted, width), fit.width - least);
  }
  return fitted;
}

std::vector<Fitted> fit(const std::vector<Column>& columns, const std::vector<Row>& rows, std::size_t width) {
  std::vector<Fitted> kept = natural_widths(columns, rows);
  while (kept.size() > 1) {
    std::vector<Fitted> tried = clipped(columns, kept, width);
    if (excess(tried, width) == 0) return tried;
    kept.erase(std::min_element(kept.begin(), kept.end(), [&](const Fitted& a, const Fitted& b) { return columns[a.column].keep < columns[b.column].keep; }));
  }
  for (Fitted& last : kept) last.width = std::min(last.width, width);
  return kept;
}

std::string format_row(const std::vector<Column>& columns, const std::vector<Fitted>& fitted, const Row& row) {
  std::string line;
  for (const Fitted& cell : fitted) {
    const std::string text = clip(row[cell.column], cell.width);
    const std::string space(cell.width - columns_of(text), ' ');
    if (&cell != &fitted.front()) line.append(kGap, ' ');
    line += columns[cell.column].align == Column::Align::right ? space + text : text + space;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<std::string> format_table(const std::vector<Column>& columns, const std::vector<Row>& rows, std::size_t width) {
  const std::vector<Fitted> fitted = fit(columns, rows, width);
  Row titles;
  for (const Column& column : columns) titles.push_back(column.title);
  std::vector<std::string> lines{format_row(columns, fitted, titles)};
  for (const Row& row : rows) lines.push_back(format_row(columns, fitted, row));
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append("\n");
  return text;
}

}  // namespace gradshm::tools
