// gradshm doctor: would a server start here, and if not, why?
#include <csignal>
#include <memory>

#include "cli.hpp"
#include "cli_table.hpp"
#include "doctor_checks.hpp"
#include "doctor_text.hpp"
#include "memory/rundir.hpp"

namespace gradshm::tools {
namespace {

constexpr const char* kFooter = R"(
Looks at the kernel, memory, limits, directories and CPUs, and tries the kernel features that gradshm stands on. Nothing
is changed and nothing is left behind. A line a check: OK, WARN (it starts, but) or FAIL, and below it what to do.
A server of that name that runs already is a WARN. JSON: see docs/json.md.

Examples:
  gradshm doctor
  gradshm doctor --layout resnet34.tsv --expect 8     is there room for that?
  gradshm doctor --json | python3 -m json.tool

Exit codes: 0 a server would start (warnings allowed), 1 it would not, 2 bad options.)";

enum DoctorCode : int { kWouldStart = 0, kWouldNot = 1 };

struct DoctorArguments {
  Question question;
  std::string color = "auto";
  bool json = false;
};

int examine_here(const DoctorArguments& arguments) {
  std::signal(SIGXFSZ, SIG_IGN);  // a small RLIMIT_FSIZE is a finding
  Question question = arguments.question;
  try {
    question.instance = core::resolve_instance_name(question.instance.c_str());
  } catch (const core::Error& error) {
    throw CLI::ValidationError("--name", error.what());
  }
  const std::vector<Finding> findings = examine(gather(question));
  const bool color = wants_color(color_of(arguments.color));
  (void)write_out(arguments.json ? doctor_json_line(question.instance, findings) : joined(doctor_lines(findings, output_width(), color)));
  return would_start(findings) ? kWouldStart : kWouldNot;
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("doctor", "Says whether a server would start here, and what is missing");
  sub->footer(kFooter);
  auto arguments = std::make_shared<DoctorArguments>();
  sub->add_option("NAME,--name", arguments->question.instance, "The instance that would be started (default $GRADSHM_INSTANCE or 'default')");
  sub->add_option("--layout", arguments->question.layout_path, "TSV or safetensors file: is there room for it?");
  sub->add_option("--expect", arguments->question.expect, "Workers that there must be room for (default 1)")->check(CLI::Range(1, 256));
  sub->add_flag("--json", arguments->json, "One JSON document");
  add_color(*sub, arguments->color);
  sub->callback([arguments, &invocation] { invocation.exit_code = examine_here(*arguments); });
}

}  // namespace gradshm::tools
