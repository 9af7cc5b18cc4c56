// What the command-line programs share: exit codes, messages, parsing.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <functional>
#include <string>

#include "base/status.hpp"

namespace gradshm::tools {

enum ExitCode : int {
  kOk = 0,
  kUsage = 1,         // bad options, and whatever has no code of its own
  kNoInstance = 2,    // no such instance (or file)
  kDead = 3,          // the server is dead, or ended while it was watched
  kIncompatible = 4,  // another version of gradshm, or damaged memory
  kMalformed = 5,     // a layout file that is none
  kNoServer = 125,    // gradshm run: the server could not be started
  kNoCommand = 127,   // gradshm run: the command cannot be executed
};

[[nodiscard]] ExitCode exit_code_of(core::Status status);

// Parses, calls `body`, and turns everything that is thrown into a message on stderr and an exit code; `usage_code` in place of kUsage.
[[nodiscard]] int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body, int usage_code = kUsage);

// Writes all of it to stdout. False if nobody reads any more (SIGPIPE must be ignored), or a signal came. Throws core::Error where it
// cannot be written: a full disk, a closed descriptor.
[[nodiscard]] bool write_out(const std::string& text);

enum class ColorChoice { automatic, always, never };
void add_color(CLI::App& app, std::string& choice);  // --color
[[nodiscard]] ColorChoice color_of(const std::string& choice);
[[nodiscard]] bool wants_color(ColorChoice choice);  // on stdout

struct TerminalSize {
  std::size_t columns = 0, rows = 0;
};
// Of the terminal that stdout is; 0 where it is none.
[[nodiscard]] TerminalSize terminal_size();
// For tables: the terminal's columns, or kUnlimited.
[[nodiscard]] std::size_t output_width();

}  // namespace gradshm::tools
