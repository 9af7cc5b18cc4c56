// gradshm layout: what an instance or a file holds.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.hpp"
#include "cli.hpp"
#include "cli_beacon.hpp"
#include "cli_layout_text.hpp"
#include "client/snapshot.hpp"
#include "memory/rundir.hpp"

namespace gradshm::tools {
namespace {

constexpr const char* kShowFooter = R"(
A name without '/' and '.' is looked for among the running instances first, then among the files (TSV, or
safetensors by its suffix); any other is a file first. ./NAME is always a file. Offsets and buckets of a file are
those that gradshmd would choose without options. JSON: see docs/json.md.

Examples:
  gradshm layout show default
  gradshm layout show model.safetensors --tsv > model.tsv

Exit codes: 0 done, 1 bad options, 2 no such instance or file, 3 the server is dead, 4 another version of
gradshm, 5 malformed file.)";

constexpr const char* kCheckFooter = R"(
Exit codes: 0 it is a layout, 1 bad options or no permission, 2 no such file, 5 malformed.)";

constexpr const char* kDiffFooter = R"(
Lines: - only in A, + only in B, ! in both but different. Parameters are matched by id, whatever their order.
A and B: a name without '/' and '.' is an instance first, then a file; any other is a file first.

Example:
  gradshm layout diff default my.tsv

Exit codes: 0 the same, 1 bad options, 2 no such instance or file, 3 the server is dead, 4 another version of
gradshm, 5 malformed file, 6 they differ.)";

constexpr const char* kFooter = R"(
Examples:
  gradshm layout show default               the parameters of an instance
  gradshm layout show model.safetensors     those of a file
  gradshm layout check resnet34.tsv         is this file a layout?
  gradshm layout diff default my.tsv        what differs
  gradshm layout show --help                more about one command)";

constexpr int kLayoutsDiffer = 6;

struct ShowArguments {
  std::string source;
  bool json = false, tsv = false;
};

core::Layout layout_of_instance(const std::string& name) {
  const core::Watcher watcher(name);
  if (watcher.layout() == nullptr) throw core::Error(core::Status::not_found, "'" + name + "' has no layout yet: it waits for its first worker");
  return *watcher.layout();
}

core::Layout layout_of_file(const std::string& path) { return {core::load_manifest(path), core::LayoutOptions{}}; }

bool is_there(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

core::Layout find_layout(const std::string& source) {
  const bool file_first = source.find_first_of("/.") != std::string::npos;
  if (file_first && is_there(source)) return layout_of_file(source);
  const std::string neither = "'" + core::escape(source) + "' is neither a file nor a running instance: ";
  try {
    core::check_instance_name(source);
  } catch (const core::Error&) {
    throw core::Error(core::Status::not_found, neither + std::strerror(ENOENT));
  }
  try {
    return layout_of_instance(source);
  } catch (const core::Error& error) {
    const bool runs = error.status() != core::Status::no_server && error.status() != core::Status::daemon_lost;
    if (runs) throw;
    if (!file_first && is_there(source)) return layout_of_file(source);
    const core::Error explained = explain_absence(source, error);
    throw core::Error(explained.status(), neither + explained.what());
  }
}

int show(const ShowArguments& arguments) {
  const core::Layout layout = find_layout(arguments.source);
  (void)write_out(arguments.json ? layout_json_line(layout) : arguments.tsv ? core::to_tsv(layout.manifest()) : layout_table(layout, output_width()));
  return kOk;
}

void add_show(CLI::App& parent, Invocation& invocation) {
  CLI::App* app = parent.add_subcommand("show", "Prints the parameters of an instance or a file");
  app->footer(kShowFooter);
  auto arguments = std::make_shared<ShowArguments>();
  app->add_option("NAME|FILE", arguments->source, "A running instance, or a layout file")->required();
  auto* json = app->add_flag("--json", arguments->json, "One JSON document");
  app->add_flag("--tsv", arguments->tsv, "A layout file that gradshmd --layout reads")->excludes(json);
  app->callback([arguments, &invocation] { invocation.exit_code = show(*arguments); });
}

std::string line_of(char mark, const core::Parameter& parameter, const std::string& what) {
  return std::string(1, mark) + " " + core::escape(parameter.name) + "  " + what + "\n";
}

int diff(const std::string& first, const std::string& second) {
  const core::Layout a = find_layout(first), b = find_layout(second);
  std::string lines;
  for (const core::Parameter& parameter : a.parameters()) {
    const std::size_t there = b.manifest().find(parameter.id);
    const std::string mine = core::describe(parameter);
    if (there == b.parameters().size()) lines += line_of('-', parameter, mine);
    else if (const std::string other = core::describe(b.parameters()[there]); other != mine) lines += line_of('!', parameter, mine + " in A, " + other + " in B");
  }
  for (const core::Parameter& parameter : b.parameters())
    if (a.manifest().find(parameter.id) == a.parameters().size()) lines += line_of('+', parameter, core::describe(parameter));
  (void)write_out(lines.empty() ? "the same " + core::format_count(a.parameters().size()) + " parameters\n" : lines);
  return lines.empty() ? kOk : kLayoutsDiffer;
}

void add_diff(CLI::App& parent, Invocation& invocation) {
  CLI::App* app = parent.add_subcommand("diff", "Compares the parameters of two instances or files");
  app->footer(kDiffFooter);
  auto sources = std::make_shared<std::pair<std::string, std::string>>();
  app->add_option("A", sources->first, "An instance or a layout file")->required();
  app->add_option("B", sources->second, "An instance or a layout file")->required();
  app->callback([sources, &invocation] { invocation.exit_code = diff(sources->first, sources->second); });
}

void add_check(CLI::App& parent, Invocation& invocation) {
  CLI::App* app = parent.add_subcommand("check", "Reads a layout file and says what is wrong with it");
  app->footer(kCheckFooter);
  auto path = std::make_shared<std::string>();
  app->add_option("FILE", *path, "TSV, or safetensors by its suffix")->required();
  app->callback([path, &invocation] {
    (void)write_out(core::escape(*path) + ": " + layout_totals(layout_of_file(*path)) + "\n");
    invocation.exit_code = kOk;
  });
}

}  // namespace

void add_layout(CLI::App& app, Invocation& invocation) {
  CLI::App* layout = app.add_subcommand("layout", "Shows, checks and compares layouts");
  layout->footer(kFooter);
  layout->require_subcommand(1);
  add_show(*layout, invocation);
  add_check(*layout, invocation);
  add_diff(*layout, invocation);
}

}  // namespace gradshm::tools
