// gradshm: runs workers with a server, lists instances, shows layouts and values, looks at the machine.
#include "cli.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace {

constexpr const char* kFooter = R"(
Examples:
  gradshm run -n 4 -- ./train         a server and 4 workers
  gradshm ls                          what runs here
  gradshm layout show default         the parameters of an instance
  gradshm layout check resnet34.tsv   is this file a layout?
  gradshm doctor                      would a server start here?
  gradshm dump --param fc1.weight     the values of a parameter's newest result
  gradshm run --help                  more about one command

Exit codes: 0 done, 1 bad options or another error, 2 no such instance, file or parameter, 3 the server is dead,
4 another version of gradshm, 5 malformed layout file, 6 the layouts differ (layout diff); of `gradshm run` and `gradshm doctor` see there.)";

// CLI11 would take options of the workers' command for ours, so what stands behind "--" never reaches it.
int split_command(int argc, char** argv, gradshm::tools::Invocation& invocation) {
  char** const end = argv + argc;
  char** const separator = std::find_if(argv, end, [](const char* argument) { return std::string_view(argument) == "--"; });
  if (separator != end) invocation.worker_command.assign(separator + 1, end);
  return static_cast<int>(separator - argv);
}

// Of the doctor 1 is an answer.
int usage_code(int argc, char** argv) { return argc > 1 && std::string_view(argv[1]) == "doctor" ? 2 : gradshm::tools::kUsage; }

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tools of gradshm, the shared-memory gradient server.", "gradshm");
  app.set_version_flag("--version", std::string("gradshm ") + GRADSHM_VERSION_TEXT);
  app.footer(kFooter);
  app.require_subcommand(1);
  gradshm::tools::Invocation invocation;
  gradshm::tools::add_run(app, invocation);
  gradshm::tools::add_ls(app, invocation);
  gradshm::tools::add_layout(app, invocation);
  gradshm::tools::add_doctor(app, invocation);
  gradshm::tools::add_dump(app, invocation);
  const int own_arguments = split_command(argc, argv, invocation);
  return gradshm::tools::run_program(app, own_arguments, argv, [&] { return invocation.exit_code; }, usage_code(own_arguments, argv));
}
