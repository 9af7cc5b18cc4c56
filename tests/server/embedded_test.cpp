// Servers started inside this program: the thread they run in, their end, their name, and forked children.
#include <fcntl.h>
#include <gradshm/server.hpp>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "server/workers.hpp"

namespace gradshm::test {
namespace {

// A directory of its own, and options that fit it.
struct Embedded {
  explicit Embedded(ServerOptions given = {}) : options(std::move(given)) {
    if (options.name.empty()) options.name = fresh_name();
#if GRADSHM_TEST_TSAN
    options.reducer_threads = 1;
#endif
    server.emplace(Server::start(options));
  }
  [[nodiscard]] Worker attach(int rank = GRADSHM_RANK_ANY) const { return Worker::attach(options.name, floats(1), {.rank = rank}); }

  RunDirectory directory;
  ServerOptions options;
  std::optional<Server> server;
};

void check_serves(const Embedded& embedded) {
  Worker worker = embedded.attach();
  fill_all(worker, 3);
  commit_and_wait(worker);
  CHECK(all_are(worker, 0, 3));
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of the thread called gradshm-server: its directory in /proc.
std::filesystem::path server_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    if (first_line(task.path() / "comm") == "gradshm-server") return task.path();
  return {};
}

std::uint64_t blocked_signals(const std::filesystem::path& task) {
  std::ifstream status(task / "status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  return 0;
}

// Open descriptors by what they are: "anon_inode:[eventpoll]", a path, "socket:[1234]".
std::set<int> descriptors_of(const std::string& what) {
  std::set<int> found;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(what)) found.insert(std::stoi(entry.path().filename().string()));
  return found;
}

void replace_by_dev_null(const std::set<int>& descriptors) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : descriptors) dup2(null, fd);
  close(null);
}

}  // namespace

TEST_CASE("a started server serves workers of the same process and stops without a trace") {
  Embedded embedded;
  CHECK(embedded.server->name() == embedded.options.name);
  CHECK(embedded.server->wait(0ns) == GRADSHM_TIMEOUT);
  check_serves(embedded);
  embedded.server->stop();
  CHECK(embedded.server->wait() == GRADSHM_OK);
  CHECK(access((embedded.directory.path() + "/" + embedded.options.name).c_str(), F_OK) != 0);
  CHECK(attach_failure(embedded.options.name, floats(1)).code == GRADSHM_NO_SERVER);
}

TEST_CASE("options of the wrapper reach the server") {
  Embedded embedded({.op = Op::sum, .max_workers = 1, .bucket_bytes = 16, .groups = {"p1"}});
  Worker worker = Worker::attach(embedded.options.name, floats(2));
  CHECK(worker.info().op == GRADSHM_SUM);
  CHECK(worker.info().groups == 2);
  CHECK(worker.info().buckets == 2);
  CHECK(attach_failure(embedded.options.name, floats(2)).code == GRADSHM_FULL);
}

TEST_CASE("the wrapper's round deadline reaches the server") {
  Embedded embedded({.expect = 2, .round_deadline = 50ms});
  std::vector<Worker> workers;
  for (int rank = 0; rank < 2; ++rank) workers.push_back(Worker::attach(embedded.options.name, floats(1), unadmitted(rank)));
  for (Worker& worker : workers) REQUIRE(worker.wait_admitted(kLong) == 1);
  commit_and_wait(workers[0]);
  CHECK(wait_for(workers[1], 1) == Outcome::evicted);
  CHECK(workers[0].round(1).contributors[0] == 1);
}

TEST_CASE("the thread of the server has a name and takes no signals but faults") {
  Embedded embedded;
  const auto task = server_thread();
  REQUIRE(!task.empty());
  const auto is_blocked = [](std::uint64_t mask, int number) { return (mask >> (number - 1) & 1) == 1; };
  CHECK(eventually([&] { return !is_blocked(blocked_signals(task), SIGSEGV); }));  // while a thread begins the C library blocks all
  const std::uint64_t blocked = blocked_signals(task);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD, SIGPIPE}) CHECK(is_blocked(blocked, number));
  CHECK(blocked_signals("/proc/self/task/" + std::to_string(getpid())) == 0);
  embedded.server.reset();
  CHECK(eventually([] { return server_thread().empty(); }));  // /proc shows a joined thread a little longer
}

TEST_CASE("destroying a server lets the open round close, and workers read it afterwards") {
  std::mutex mutex;
  std::string said;
  Embedded embedded({.op = Op::sum, .expect = 2, .drain = kLong, .log = [&](LogLevel, std::string_view sentence) {
                       const std::lock_guard lock(mutex);
                       said += sentence;
                     }});
  std::vector<Worker> workers;
  for (int rank = 0; rank < 2; ++rank) workers.push_back(Worker::attach(embedded.options.name, floats(1), unadmitted(rank)));
  for (Worker& worker : workers) REQUIRE(worker.wait_admitted(kLong) == 1);
  fill_all(workers[0], 1), fill_all(workers[1], 2);
  CHECK(commit(workers[0]) == Outcome::ok);
  nap();
  std::thread destroyer([&] { embedded.server.reset(); });
  CHECK(eventually([&] {
    const std::lock_guard lock(mutex);
    return said.find("stopping once round 1 has closed") != std::string::npos;
  }));
  CHECK(commit(workers[1]) == Outcome::ok);
  CHECK(wait_for(workers[0], 1) == Outcome::ok);
  destroyer.join();
  CHECK(all_are(workers[0], 0, 3));
}

TEST_CASE("destroy after stop waits for the drain that stop has begun") {
  Embedded embedded({.expect = 1, .bucket_bytes = kOneEach, .drain = kLong});
  Worker worker = Worker::attach(embedded.options.name, floats(2));
  CHECK(worker.commit_parameter(0).status() == Outcome::ok);
  nap();
  embedded.server->request_stop();
  std::thread destroyer([&] { embedded.server.reset(); });
  nap();
  CHECK(worker.commit().status() == Outcome::ok);
  CHECK(wait_for(worker, 1) == Outcome::ok);
  destroyer.join();
}

TEST_CASE("destroy ends a server that another thread runs") {
  const RunDirectory directory;
  auto options = server_options();
  const std::string name = fresh_name();
  options.size = sizeof options, options.name = name.c_str(), options.reducer_threads = 1;
  gradshm_server_t* server = nullptr;
  REQUIRE(gradshm_server_create(&options, &server) == GRADSHM_OK);
  CHECK(answer(gradshm_server_wait(server, -1)).code == GRADSHM_INVALID);
  std::thread runner([&] { CHECK(gradshm_server_run(server) == GRADSHM_OK); });
  { const Worker worker = Worker::attach(name, floats(1)); }
  CHECK(gradshm_server_wait(server, 0) == GRADSHM_TIMEOUT);
  gradshm_server_destroy(server);
  runner.join();
  CHECK(access((directory.path() + "/" + name).c_str(), F_OK) != 0);
}

TEST_CASE("a server runs once") {
  Embedded embedded;
  CHECK(gradshm_server_run(embedded.server->get()) == GRADSHM_INVALID);
  CHECK(std::string(gradshm_server_last_error()).find("runs already") != std::string::npos);
  embedded.server->stop();
  CHECK(gradshm_server_run(embedded.server->get()) == GRADSHM_INVALID);
  CHECK(std::string(gradshm_server_last_error()).find("has ended") != std::string::npos);
}

TEST_CASE("of one name only one server starts, be it embedded or gradshmd, and a stopped one makes room") {
  Embedded embedded;
  const Failure refused = failure_of([&] { static_cast<void>(Server::start(embedded.options)); });
  CHECK(refused.code == GRADSHM_ALREADY_RUNNING);
  CHECK(refused.says("pid " + std::to_string(getpid())));
  check_serves(embedded);
#if !GRADSHM_TEST_TSAN
  const Output daemon = run_program("tools/gradshmd", {"--name", embedded.options.name});
  CHECK(daemon.code == 2);
  CHECK(daemon.text.find("pid " + std::to_string(getpid())) != std::string::npos);
#endif
  embedded.server->stop();
  const Server next = Server::start(embedded.options);
  check_serves(embedded);
}

TEST_CASE("wrong arguments of start are said, and nothing is started") {
  CHECK(gradshm_server_start(nullptr, nullptr) == GRADSHM_INVALID);
  CHECK(gradshm_server_wait(nullptr, 0) == GRADSHM_INVALID);
  CHECK(std::string(gradshm_server_name(nullptr)).empty());
  const Failure refused = failure_of([] { static_cast<void>(Server::start({.name = "no good"})); });
  CHECK(refused.code == GRADSHM_INVALID);
  CHECK(refused.says("'no good' is no instance name"));
}

TEST_CASE("an error that ends the server is the answer of wait, and the workers hear of it though the process lives") {
  const auto before = descriptors_of("anon_inode:[eventpoll]");
  Embedded embedded;
  Worker worker = embedded.attach();
  auto loops = descriptors_of("anon_inode:[eventpoll]");
  for (const int fd : before) loops.erase(fd);
  REQUIRE(loops.size() == 1);
  replace_by_dev_null(loops);  // epoll_wait fails from now on
  CHECK(embedded.server->wait(kLong) == GRADSHM_SYSTEM);
  CHECK(std::string(gradshm_server_last_error()).find("epoll_wait") != std::string::npos);
  static_cast<void>(commit(worker));
  CHECK(wait_for(worker, 1) == Outcome::daemon_lost);
  CHECK(attach_failure(embedded.options.name, floats(1)).code == GRADSHM_NO_SERVER);
  CHECK(failure_of([&] { embedded.server->stop(); }).code == GRADSHM_SYSTEM);
  const Server next = Server::start(embedded.options);
  check_serves(embedded);
}

#if !GRADSHM_TEST_TSAN  // TSan does not support a fork with threads
namespace {
[[maybe_unused]] int calls_in_child(Embedded& embedded) {
  gradshm_server_t* server = embedded.server->get();
  if (gradshm_server_run(server) != GRADSHM_FORKED || gradshm_server_wait(server, -1) != GRADSHM_FORKED) return 1;
  if (std::string(gradshm_server_last_error()).find("belongs to the parent process") == std::string::npos) return 2;
  embedded.server->request_stop();
  embedded.server.reset();
  if (!descriptors_of("anon_inode:[eventpoll]").empty()) return 3;
  if (!descriptors_of(embedded.directory.path()).empty()) return 4;  // the lock
  const Server own = Server::start({.name = embedded.options.name + "-child"});
  Worker worker = Worker::attach(own.name(), floats(1));
  return worker.commit().wait(kLong) == Outcome::ok ? 0 : 5;
}
}  // namespace

TEST_CASE("a forked child does not have the server, harms it in no way, and may start its own") {
  Embedded embedded;
  Child child([&] { return calls_in_child(embedded); });
  CHECK(child.wait() == 0);
  check_serves(embedded);
}

TEST_CASE("a child that lives longer than the server does not keep its name") {
  Embedded embedded;
  Board board;
  Child child([&] {
    board.wait_for(0, 1);
    return 0;
  });
  embedded.server.reset();
  const Server next = Server::start(embedded.options);
  check_serves(embedded);
  board.set(0, 1);
  CHECK(child.wait() == 0);
}

TEST_CASE("a child of a killed program does not keep the name, and the next server takes it over") {
  const RunDirectory directory;
  const std::string name = fresh_name();
  Board board;
  Child program([&] {
    const Server server = Server::start({.name = name});
    const Child child([&] {
      prctl(PR_SET_PDEATHSIG, 0);  // lives on
      board.set(1, getpid());
      board.wait_for(0, 1);
      return 0;
    });
    board.wait_for(0, 1);
    return 0;
  });
  board.wait_for(1, 1);
  program.kill();
  CHECK(program.wait() == 137);
  CHECK(failure_of([&] {
          const Server next = Server::start({.name = name});
          const Worker worker = Worker::attach(name, floats(1));
        }).code == 0);
  CHECK(kill(static_cast<pid_t>(board.get(1)), 0) == 0);
  board.set(0, 1);
}
#endif

}  // namespace gradshm::test
