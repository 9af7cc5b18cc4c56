// gradshm's server for C++20: header-only RAII over server.h, which says the rules of threads and fork. Link gradshm-server and gradshm.
#pragma once

#include <gradshm/gradshm.hpp>
#include <gradshm/server.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradshm {

enum class Op : int { mean = GRADSHM_MEAN, sum = GRADSHM_SUM, weighted_mean = GRADSHM_WEIGHTED_MEAN };
enum class LogLevel : int { debug = GRADSHM_LOG_DEBUG, info = GRADSHM_LOG_INFO, warning = GRADSHM_LOG_WARNING, error = GRADSHM_LOG_ERROR };

// What is left as it is means what it means to gradshmd.
struct ServerOptions {
  std::string name = {};         // "": environment GRADSHM_INSTANCE, else "default"
  std::string layout_path = {};  // "": the first worker brings the layout
  Op op = Op::mean;
  unsigned max_workers = 0, expect = 0, reducer_threads = 0;
  std::uint64_t bucket_bytes = 0;
  std::vector<std::string> groups = {};
  std::optional<std::chrono::nanoseconds> spin = std::nullopt, drain = std::nullopt;
  std::optional<std::chrono::nanoseconds> round_deadline = std::nullopt;  // from a round's first commit; who is later is evicted
  std::optional<std::chrono::nanoseconds> rejoin_timeout = std::nullopt;
  std::uint64_t memory_budget = 0;
  std::string socket_group = {};  // "": only this user and root may attach
  std::function<void(LogLevel, std::string_view)> log = {};  // called by the server's thread; must not throw
};

// Serves from start until it is destroyed.
class Server {
 public:
  // Workers can attach when it returns. Throws Error.
  static Server start(const ServerOptions& options = {}) { return Server(options); }

  [[nodiscard]] std::string name() const { return gradshm_server_name(server_.get()); }
  // Lets the open round close and returns when the server has ended; throws Error where an error had ended it before.
  void stop() {
    request_stop();
    if (const int code = wait(); code != GRADSHM_OK) throw Error(code, gradshm_server_last_error());
  }
  // Asks for it and returns at once; a second time does not wait for the open round.
  void request_stop() noexcept { gradshm_server_stop(server_.get()); }
  // GRADSHM_OK: it was stopped; GRADSHM_TIMEOUT: it serves; else the code of the error that ended it.
  int wait(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) noexcept {
    return gradshm_server_wait(server_.get(), detail::nanoseconds(timeout));
  }
  [[nodiscard]] gradshm_server_t* get() const noexcept { return server_.get(); }

 private:
  using Log = std::function<void(LogLevel, std::string_view)>;
  explicit Server(const ServerOptions& options) : log_(std::make_unique<Log>(options.log)) {
    std::vector<const char*> groups;
    for (const std::string& prefix : options.groups) groups.push_back(prefix.c_str());
    auto raw = detail::sized<gradshm_server_options_t>();
    raw.name = options.name.empty() ? nullptr : options.name.c_str();
    raw.layout_path = options.layout_path.empty() ? nullptr : options.layout_path.c_str();
    raw.op = static_cast<std::int32_t>(options.op);
    raw.max_workers = options.max_workers, raw.expect = options.expect, raw.reducer_threads = options.reducer_threads;
    raw.bucket_bytes = options.bucket_bytes, raw.groups = groups.data(), raw.group_count = groups.size();
    raw.spin_ns = nanoseconds_or_none(options.spin), raw.drain_ns = nanoseconds_or_none(options.drain);
    if (options.round_deadline) raw.round_deadline_ns = options.round_deadline->count();
    raw.rejoin_timeout_ns = nanoseconds_or_none(options.rejoin_timeout);
    raw.memory_budget = options.memory_budget;
    raw.socket_group = options.socket_group.empty() ? nullptr : options.socket_group.c_str();
    if (*log_) raw.log = &Server::log, raw.log_context = log_.get();
    gradshm_server_t* server = nullptr;
    if (const int code = gradshm_server_start(&raw, &server); code != GRADSHM_OK) throw Error(code, gradshm_server_last_error());
    server_.reset(server);
  }
  // In the C options 0 is the default and negative is none at all.
  static std::int64_t nanoseconds_or_none(std::optional<std::chrono::nanoseconds> time) {
    return !time ? 0 : time->count() > 0 ? time->count() : -1;
  }
  static void log(void* context, int level, const char* sentence) { (*static_cast<const Log*>(context))(static_cast<LogLevel>(level), sentence); }

  struct Destroy {
    void operator()(gradshm_server_t* server) const noexcept { gradshm_server_destroy(server); }
  };
  std::unique_ptr<Log> log_;  // before server_: it logs until its end
  std::unique_ptr<gradshm_server_t, Destroy> server_;
};

}  // namespace gradshm
