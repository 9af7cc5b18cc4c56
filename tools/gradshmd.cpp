// gradshmd: one instance, in the foreground, until SIGTERM.
#include <gradshm/server.h>
#include <fcntl.h>
#include <spdlog/async.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "option_values.hpp"

namespace {

constexpr const char* kFooter = R"(Examples:
  gradshmd                                        the instance 'default'; the first worker brings the layout
  gradshmd --name rl --layout model.tsv --expect 4
  gradshmd --op weighted-mean --group actor. --group critic.
  gradshmd --round-deadline 2s                    who is 2 s later than the first is evicted

Killed (-9) and started again with the same options, it goes on where it was: its workers come back by themselves.

SIGTERM and SIGINT stop: the open round may still close; a second one stops at once. SIGHUP is ignored.
Environment: GRADSHM_DIR (where sockets live), GRADSHM_INSTANCE (default of --name), NOTIFY_SOCKET (systemd readiness), NO_COLOR.
Exit codes: 0 stopped, 1 bad option, 2 a server of that name runs already, 3 not enough memory, 4 bad layout file, 5 anything else.)";

constexpr std::size_t kLogQueueLines = 4096;
constexpr auto kLogPatience = std::chrono::seconds(2);

struct Arguments {
  std::string name = "default", layout, op = "mean", log_level = "info";
  unsigned max_workers = 64, expect = 1, reducer_threads = 0;
  std::uint64_t bucket_bytes = 8u << 20;
  std::vector<std::string> groups;
  long spin_us = 50;
  double drain_s = 5, round_deadline_s = 0, rejoin_timeout_s = 30;
  std::uint64_t memory_budget = 0;
  std::string socket_group;
  bool log_json = false;
};

const std::map<std::string, int> kOps{{"sum", GRADSHM_SUM}, {"mean", GRADSHM_MEAN}, {"weighted-mean", GRADSHM_WEIGHTED_MEAN}};

void add_options(CLI::App& app, Arguments& arguments) {
  app.set_version_flag("--version", std::string("gradshmd ") + gradshm_server_version());
  app.add_option("--name", arguments.name, "Name of the instance, 1 to 64 of letters, digits, '.', '_', '-'")->envname("GRADSHM_INSTANCE")->capture_default_str();
  app.add_option("--layout", arguments.layout, "TSV or .safetensors file with the parameters; without it the first worker's are taken");
  app.add_option("--max-workers", arguments.max_workers, "Most workers at a time")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--expect", arguments.expect, "Round 1 opens with this many ready workers")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--op", arguments.op, "mean: sum of g / sum of w; weighted-mean: sum of w g / sum of w; sum: sum of g")
      ->check(CLI::IsMember({"sum", "mean", "weighted-mean"}))->capture_default_str();
  app.add_option("--bucket-bytes", arguments.bucket_bytes, "Most bytes of a bucket, the unit of commit and reduction")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))->capture_default_str();
  app.add_option("--reducer-threads", arguments.reducer_threads, "Threads that sum; 0 = all CPUs")->check(CLI::Range(0, 1024))->capture_default_str();
  app.add_option("--group", arguments.groups, "Name prefix whose parameters are weighted together; may be given several times")->take_all();
  app.add_option("--spin-us", arguments.spin_us, "How long to look for work before sleeping, in microseconds")->check(CLI::Range(0, 1'000'000))->capture_default_str();
  app.add_option("--drain-s", arguments.drain_s, "How long SIGTERM waits for the open round, in seconds")->transform(gradshm::tools::seconds_up_to(gradshm::tools::kMostDrainSeconds))->capture_default_str();
  app.add_option("--round-deadline", arguments.round_deadline_s, "Evict who has not committed everything this long after a round's first commit (5, 500ms, 2min); 0 = never")
      ->transform(gradshm::tools::seconds_up_to(gradshm::tools::kMostSeconds))->capture_default_str();
  app.add_option("--rejoin-timeout", arguments.rejoin_timeout_s, "After a kill: how long workers look for the new server, and it waits for them (s); 0 = not at all: a kill ends them")
      ->transform(gradshm::tools::seconds_up_to(gradshm::tools::kMostSeconds))->capture_default_str();
  app.add_option("--memory-budget", arguments.memory_budget, "Most bytes (64MB, 2GiB) of all slots, those of evicted workers that live on included; 0 = 2 * max-workers slots")
      ->transform(gradshm::tools::bytes())->capture_default_str();
  app.add_option("--socket-group", arguments.socket_group, "Name or number of a group whose members may attach too; set GRADSHM_DIR to a directory that they can reach");
  app.add_option("--log-level", arguments.log_level, "Least level that is logged")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))->capture_default_str();
  app.add_flag("--log-json", arguments.log_json, "Log as JSON, one object a line");
  app.footer(kFooter);
}

void set_up_log(const Arguments& arguments) {
  // A queue that drops its oldest lines: a reader who does not read must not stop the rounds.
  spdlog::init_thread_pool(kLogQueueLines, 1);
  auto logger = spdlog::create_async_nb<spdlog::sinks::stderr_color_sink_mt>("gradshmd");
  if (const char* no_color = std::getenv("NO_COLOR"); no_color != nullptr && *no_color != '\0')
    dynamic_cast<spdlog::sinks::stderr_color_sink_mt&>(*logger->sinks().front()).set_color_mode(spdlog::color_mode::never);
  spdlog::set_default_logger(logger);
  spdlog::set_error_handler([](const std::string&) {});  // a line that cannot be written is lost, and that cannot be written either
  spdlog::set_level(spdlog::level::from_str(arguments.log_level));
  spdlog::set_pattern(arguments.log_json ? "%v" : "%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
}

// context: the Arguments.
void log_sentence(void* context, int level, const char* sentence) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  const auto severity = kLevels[level];
  const auto& arguments = *static_cast<const Arguments*>(context);
  if (!arguments.log_json) return spdlog::log(severity, "{}", sentence);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const nlohmann::json line{{"time", now}, {"level", spdlog::level::to_string_view(severity).data()}, {"instance", arguments.name}, {"message", sentence}};
  spdlog::log(severity, "{}", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// systemd's readiness protocol (sd_notify(3)): one datagram to the socket that the environment names.
void notify_systemd(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (*path != '/' && *path != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(std::strlen(path), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path, length);
  if (*path == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (fd < 0 || sendto(fd, state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), bytes) < 0)
    spdlog::warn("cannot tell systemd at {}: {}", path, std::strerror(errno));
  if (fd >= 0) close(fd);
}

// Writes out what is queued, but does not wait for ever for a reader: then the process ends without it.
[[noreturn]] void leave(int code) {
  const auto give_up = std::chrono::steady_clock::now() + kLogPatience;
  spdlog::default_logger()->flush();
  while (spdlog::thread_pool()->queue_size() > 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (spdlog::thread_pool()->queue_size() > 0) std::_Exit(code);
  spdlog::shutdown();
  std::exit(code);
}

sigset_t handled_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, number);
  return signals;
}

// SIGUSR1 once `ended` is set comes from ourselves and ends the thread; somebody else's is ignored.
void wait_for_signals(gradshm_server_t* server, Arguments& arguments, const std::atomic<bool>& ended) {
  const sigset_t signals = handled_signals();
  for (int number = 0; sigwait(&signals, &number) == 0;) {
    // order: relaxed, the signal itself brings the news.
    if (number == SIGUSR1 && ended.load(std::memory_order_relaxed)) return;
    if (number == SIGUSR1) continue;
    if (number == SIGHUP) {
      log_sentence(&arguments, GRADSHM_LOG_INFO, "SIGHUP is ignored: nothing is read again; restart to change options");
      continue;
    }
    gradshm_server_stop(server);
    log_sentence(&arguments, GRADSHM_LOG_INFO, number == SIGTERM ? "stopping: SIGTERM" : "stopping: SIGINT");
    notify_systemd("STOPPING=1");
  }
}

int exit_code(int code) {
  switch (code) {
    case GRADSHM_OK: return 0;
    case GRADSHM_INVALID: return 1;
    case GRADSHM_ALREADY_RUNNING: return 2;
    case GRADSHM_NO_SPACE:
    case GRADSHM_NO_MEMORY: return 3;
    case GRADSHM_BAD_LAYOUT:
    case GRADSHM_NOT_FOUND: return 4;
    default: return 5;
  }
}

int fail(Arguments& arguments, int code) {
  log_sentence(&arguments, GRADSHM_LOG_ERROR, gradshm_server_last_error());
  return exit_code(code);
}

// Whoever starts us with 0, 1 or 2 closed would have the log written into the next file we open.
void take_standard_descriptors() {
  for (int fd = 0; fd >= 0 && fd <= 2;) fd = open("/dev/null", O_RDWR);
}

int serve(Arguments& arguments) {
  std::vector<const char*> groups;
  for (const std::string& prefix : arguments.groups) groups.push_back(prefix.c_str());
  gradshm_server_options_t options{};
  options.size = sizeof options;
  options.name = arguments.name.c_str();
  options.layout_path = arguments.layout.empty() ? nullptr : arguments.layout.c_str();
  options.op = kOps.at(arguments.op);
  options.max_workers = arguments.max_workers, options.expect = arguments.expect, options.reducer_threads = arguments.reducer_threads;
  options.bucket_bytes = arguments.bucket_bytes, options.groups = groups.data(), options.group_count = groups.size();
  options.spin_ns = arguments.spin_us == 0 ? -1 : arguments.spin_us * 1000;
  options.drain_ns = arguments.drain_s == 0 ? -1 : static_cast<std::int64_t>(arguments.drain_s * 1e9);
  options.round_deadline_ns = static_cast<std::int64_t>(arguments.round_deadline_s * 1e9);
  options.rejoin_timeout_ns = arguments.rejoin_timeout_s == 0 ? -1 : static_cast<std::int64_t>(arguments.rejoin_timeout_s * 1e9);
  options.memory_budget = arguments.memory_budget;
  options.socket_group = arguments.socket_group.empty() ? nullptr : arguments.socket_group.c_str();
  options.log = log_sentence, options.log_context = &arguments;
  gradshm_server_t* server = nullptr;
  if (const int code = gradshm_server_create(&options, &server); code != GRADSHM_OK) return fail(arguments, code);
  std::atomic<bool> ended{false};
  std::thread signals(wait_for_signals, server, std::ref(arguments), std::cref(ended));
  const std::string ready = "ready: instance '" + arguments.name + "', pid " + std::to_string(getpid()) + ", round 1 opens with " +
                            std::to_string(arguments.expect) + (arguments.expect == 1 ? " worker" : " workers");
  log_sentence(&arguments, GRADSHM_LOG_INFO, ready.c_str());
  notify_systemd("READY=1");
  const int code = gradshm_server_run(server);
  ended.store(true, std::memory_order_relaxed);  // order: relaxed, as above
  pthread_kill(signals.native_handle(), SIGUSR1);
  signals.join();
  gradshm_server_destroy(server);
  if (code != GRADSHM_OK) return fail(arguments, code);
  log_sentence(&arguments, GRADSHM_LOG_INFO, "stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Before any thread exists, so that every thread has them blocked and the signal thread alone takes them.
  const sigset_t signals = handled_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a log reader that goes away must not take the server with it
  std::signal(SIGXFSZ, SIG_IGN);  // the failed call says it
  take_standard_descriptors();
  CLI::App app("The server of one gradshm instance: sums the gradients that worker processes write into shared memory.", "gradshmd");
  Arguments arguments;
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  set_up_log(arguments);
  leave(serve(arguments));
}
