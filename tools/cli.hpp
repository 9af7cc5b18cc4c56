// The subcommands of `gradshm`: each declares its options and says what runs it.
#pragma once

#include <string>
#include <vector>

#include "cli_common.hpp"

namespace gradshm::tools {

struct Invocation {
  std::vector<std::string> worker_command;  // what stands behind "--"
  int exit_code = kOk;                      // set by the subcommand that ran
};

void add_run(CLI::App& app, Invocation& invocation);
void add_ls(CLI::App& app, Invocation& invocation);
void add_layout(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
void add_dump(CLI::App& app, Invocation& invocation);

}  // namespace gradshm::tools
