#include "top_screen.hpp"

#include <unistd.h>

#include <cstdlib>

#include "cli_common.hpp"

namespace gradshm::tools {
namespace {

constexpr std::size_t kBatchWidth = 160;  // into a file or pipe, where COLUMNS says nothing

std::size_t columns_from_environment() {
  const char* text = std::getenv("COLUMNS");
  const long columns = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return columns > 0 && columns <= 10'000 ? static_cast<std::size_t>(columns) : kBatchWidth;
}

}  // namespace

Screen::Screen(ColorChoice color, bool live) : live_(live && isatty(STDOUT_FILENO) == 1), color_(wants_color(color)) {}

View Screen::view() const {
  const TerminalSize size = terminal_size();
  if (size.columns == 0) return {columns_from_environment(), 0, color_};
  return {size.columns, live_ && size.rows > 1 ? size.rows - 1 : 0, color_};  // the last row is for the cursor
}

bool Screen::show(const std::vector<std::string>& lines) const {
  // Each line clears its own rest and the end what is below, so that nothing flickers.
  std::string text = live_ ? "\x1b[H" : "";
  for (const std::string& line : lines) text.append(line).append(live_ ? "\x1b[K\n" : "\n");
  text += live_ ? "\x1b[J" : "";
  return write_out(text);
}

}  // namespace gradshm::tools
