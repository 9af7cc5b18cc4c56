// gradshm-top: who is late, and why.
#include <string>

#include "cli_common.hpp"
#include "memory/rundir.hpp"
#include "top_loop.hpp"

namespace {

constexpr const char* kFooter = R"(
Examples:
  gradshm-top                     live, of the instance $GRADSHM_INSTANCE or 'default'
  gradshm-top run-4711 --once     one table
  gradshm-top --json | python3 -m json.tool
  gradshm-top --json -n 60 -d 1   a document a line, one a second, for a minute

Exit codes:
  0  done, or ended by SIGINT, SIGTERM, SIGHUP or a closed pipe
  1  bad options, or another error
  2  no such instance
  3  the server is dead, or ended while it was watched (its last beacon or picture is shown). Without --once, --json
     and -n a killed one stays on the screen as DEAD, and the next one of that name takes its place
  4  another version of gradshm, or damaged memory)";

struct Arguments {
  std::string name, color = "auto";
  bool once = false, json = false;
  std::uint64_t iterations = 0;
  double seconds = 1;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.set_version_flag("--version", std::string("gradshm-top ") + GRADSHM_VERSION_TEXT);
  app.footer(kFooter);
  app.add_option("INSTANCE,--name", arguments.name, "The instance to look at");
  auto* once = app.add_flag("--once", arguments.once, "One table, then exit");
  app.add_flag("--json", arguments.json, "JSON in place of the table: one document, or with -n one a line (see docs/json.md)");
  app.add_option("-n,--iterations", arguments.iterations, "So many pictures, then exit")->check(CLI::Range(1, 1'000'000'000))->excludes(once);
  app.add_option("-d,--delay", arguments.seconds, "Seconds between two pictures (default 1)");
  gradshm::tools::add_color(app, arguments.color);
}

gradshm::tools::TopOptions to_options(const Arguments& arguments) {
  // CLI::Range lets NaN pass.
  if (!(arguments.seconds >= 0.01 && arguments.seconds <= 86'400)) throw CLI::ValidationError("--delay", "wants 0.01 to 86400 seconds");
  gradshm::tools::TopOptions options;
  options.instance = gradshm::core::resolve_instance_name(arguments.name.c_str());
  options.json = arguments.json;
  options.iterations = arguments.once || (arguments.json && arguments.iterations == 0) ? 1 : arguments.iterations;
  options.interval_ns = static_cast<std::int64_t>(arguments.seconds * 1e9);
  options.color = gradshm::tools::color_of(arguments.color);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows an instance of gradshm: its workers, its last rounds, and whom the open round waits for.", "gradshm-top");
  Arguments arguments;
  declare(app, arguments);
  return gradshm::tools::run_program(app, argc, argv, [&] { return gradshm::tools::watch(to_options(arguments)); });
}
