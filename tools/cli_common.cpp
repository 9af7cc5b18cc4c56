#include "cli_common.hpp"

#include <sys/ioctl.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "cli_table.hpp"

namespace gradshm::tools {

ExitCode exit_code_of(core::Status status) {
  switch (status) {
    case core::Status::no_server:
    case core::Status::not_found: return kNoInstance;
    case core::Status::daemon_lost: return kDead;
    case core::Status::incompatible:
    case core::Status::corrupt: return kIncompatible;
    case core::Status::bad_layout: return kMalformed;
    default: return kUsage;
  }
}

namespace {

// Whoever starts us with 0, 1 or 2 closed would have our lines written into the next file or socket we open. Read-only: writing still fails.
void take_standard_descriptors() {
  int fd = 0;
  while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= 2) {}
  if (fd > 2) close(fd);
}

}  // namespace

int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body, int usage_code) {
  take_standard_descriptors();
  int code = usage_code;
  std::string message;
  try {
    app.parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining(true);
    const bool lacks_subcommand = std::string_view(error.what()).find("subcommand") != std::string_view::npos;
    if (!lacks_subcommand || unknown.empty()) return app.exit(error) == 0 ? kOk : usage_code;  // CLI11 prints help, version or complaint; its own codes are above 100
    message = "'" + core::escape(unknown.front()) + "' is no subcommand or option here; --help names them";
  } catch (const core::Error& error) {
    if (const ExitCode own = exit_code_of(error.status()); own != kUsage) code = own;
    message = error.what();
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), message.c_str());
  return code;
}

bool write_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
  if (errno == EPIPE || errno == EINTR) return false;
  throw core::system_error("cannot write to standard output", errno);
}

bool wants_color(ColorChoice choice) {
  if (choice != ColorChoice::automatic) return choice == ColorChoice::always;
  const char* refused = std::getenv("NO_COLOR");  // https://no-color.org: any value but the empty one
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

void add_color(CLI::App& app, std::string& choice) {
  app.add_option("--color", choice, "auto, always or never (default auto: on a terminal, unless NO_COLOR is set)")->check(CLI::IsMember({"auto", "always", "never"}));
}

ColorChoice color_of(const std::string& choice) {
  return choice == "always" ? ColorChoice::always : choice == "never" ? ColorChoice::never : ColorChoice::automatic;
}

TerminalSize terminal_size() {
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return {};
  return {window.ws_col, window.ws_row};
}

std::size_t output_width() {
  const std::size_t columns = terminal_size().columns;
  return columns == 0 ? kUnlimited : columns;
}

}  // namespace gradshm::tools
