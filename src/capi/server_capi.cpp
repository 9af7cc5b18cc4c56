// The C ABI of libgradshm-server.so.
#include <gradshm/server.h>

#include <algorithm>
#include <memory>

#include "capi/guard.hpp"
#include "capi/structs.hpp"
#include "daemon/server_runner.hpp"

using namespace gradshm::core;

struct gradshm_server {
  explicit gradshm_server(ServerOptions options) : runner(std::move(options)) {}
  ServerRunner runner;
};

namespace {

ServerOptions server_options(const gradshm_server_options_t* given) {
  const auto raw = read_struct(given, "gradshm_server_options_t");
  ServerOptions options;
  options.name = resolve_instance_name(raw.name);
  if (raw.layout_path != nullptr) options.layout_path = raw.layout_path;
  options.op = static_cast<Op>(raw.op);
  if (raw.max_workers != 0) options.max_workers = raw.max_workers;
  if (raw.expect != 0) options.expect = raw.expect;
  options.reducer_threads = raw.reducer_threads;
  if (raw.bucket_bytes != 0) options.layout.bucket_bytes = raw.bucket_bytes;
  if (raw.group_count > 0) require(raw.groups, "groups");
  for (std::size_t i = 0; i < raw.group_count; ++i) {
    require(raw.groups[i], "groups[i]");
    options.layout.group_prefixes.emplace_back(raw.groups[i]);
  }
  if (raw.spin_ns != 0) options.spin_ns = raw.spin_ns;
  if (raw.drain_ns != 0) options.drain_ns = raw.drain_ns;
  options.round_deadline_ns = raw.round_deadline_ns;
  if (raw.rejoin_timeout_ns != 0) options.rejoin_timeout_ns = std::max<std::int64_t>(raw.rejoin_timeout_ns, 0);
  options.memory_budget = raw.memory_budget;
  if (raw.socket_group != nullptr) options.socket_group = raw.socket_group;
  if (raw.log != nullptr)
    options.log = [log = raw.log, context = raw.log_context](LogLevel level, const std::string& sentence) {
      log(context, static_cast<int>(level), sentence.c_str());
    };
  return options;
}

ServerRunner& usable(gradshm_server_t* server) {
  require(server, "server");
  if (server->runner.forked())
    throw Error(Status::forked, "the server '" + server->runner.name() + "' belongs to the parent process: start another one here");
  return server->runner;
}

}  // namespace

extern "C" {

const char* gradshm_server_version(void) { return GRADSHM_VERSION_TEXT; }
const char* gradshm_server_last_error(void) { return last_error().c_str(); }

int gradshm_server_create(const gradshm_server_options_t* options, gradshm_server_t** ret_server) {
  return guard([&] {
    require(ret_server, "ret_server");
    *ret_server = new gradshm_server(server_options(options));
  });
}

int gradshm_server_start(const gradshm_server_options_t* options, gradshm_server_t** ret_server) {
  return guard([&] {
    require(ret_server, "ret_server");
    std::unique_ptr<gradshm_server> server(new gradshm_server(server_options(options)));
    server->runner.start();
    *ret_server = server.release();
  });
}

int gradshm_server_run(gradshm_server_t* server) {
  return guard([&] { usable(server).run(); });
}

void gradshm_server_stop(gradshm_server_t* server) {
  if (server != nullptr && !server->runner.forked()) server->runner.stop();
}

int gradshm_server_wait(gradshm_server_t* server, int64_t timeout_ns) {
  return guard([&] { usable(server).wait(Deadline::after(timeout_ns)); });
}

const char* gradshm_server_name(const gradshm_server_t* server) { return server == nullptr ? "" : server->runner.name().c_str(); }

void gradshm_server_destroy(gradshm_server_t* server) {
  if (server != nullptr && !server->runner.forked()) delete server;  // a child's copy is left as it is
}

}  // extern "C"
