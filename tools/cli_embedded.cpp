// gradshm run --embedded: the server in a thread of this process.
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "cli_common.hpp"
#include "cli_server.hpp"

namespace gradshm::tools {
namespace {

const std::map<std::string, Op> kOps{{"mean", Op::mean}, {"sum", Op::sum}, {"weighted-mean", Op::weighted_mean}};

// CLI11 has checked what stands behind the "=".
std::chrono::nanoseconds seconds(const std::string& text) { return std::chrono::nanoseconds(static_cast<std::int64_t>(std::stod(text) * 1e9)); }

ServerOptions read_options(const std::vector<std::string>& options) {
  ServerOptions read;
  for (const std::string& option : options) {
    const std::size_t split = option.find('=');
    const std::string name = option.substr(0, split), value = option.substr(split + 1);
    if (name == "--name") read.name = value;
    if (name == "--layout") read.layout_path = value;
    if (name == "--op") read.op = kOps.at(value);
    if (name == "--expect") read.expect = static_cast<unsigned>(std::stoul(value));
    if (name == "--max-workers") read.max_workers = static_cast<unsigned>(std::stoul(value));
    if (name == "--reducer-threads") read.reducer_threads = static_cast<unsigned>(std::stoul(value));
    if (name == "--bucket-bytes") read.bucket_bytes = std::stoull(value);
    if (name == "--round-deadline") read.round_deadline = seconds(value);
    if (name == "--rejoin-timeout") read.rejoin_timeout = seconds(value);
    if (name == "--drain-s") read.drain = seconds(value);
    if (name == "--spin-us") read.spin = std::chrono::microseconds(std::stoul(value));
    if (name == "--memory-budget") read.memory_budget = std::stoull(value);
    if (name == "--socket-group") read.socket_group = value;
    if (name == "--group") read.groups.push_back(value);
  }
  return read;
}

}  // namespace

EmbeddedServer::EmbeddedServer(const std::string& instance, const std::vector<std::string>& options, bool verbose) : RunServer(instance) {
  ServerOptions read = read_options(options);
  read.log = [least = verbose ? LogLevel::info : LogLevel::warning](LogLevel level, std::string_view sentence) {
    if (level >= least) std::fprintf(stderr, "gradshm run: server: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
  };
  try {
    server_.emplace(Server::start(read));
  } catch (const Error& error) {
    throw ServerFailed("cannot start the server: " + std::string(error.what()), kNoServer);
  }
}

void EmbeddedServer::note_end() {
  if (ended_ || server_->wait(std::chrono::nanoseconds(0)) == GRADSHM_TIMEOUT) return;
  ended_ = true;
  std::fprintf(stderr, "gradshm run: the server ended before its workers: %s\n", gradshm_server_last_error());
}

}  // namespace gradshm::tools
