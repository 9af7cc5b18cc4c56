// Nonsense on the socket: told, dropped, and nobody else notices.
#include <filesystem>
#include <fstream>

#include "server/raw_client.hpp"

namespace gradshm::test {
namespace {

std::string bytes_of(const auto& message) { return {reinterpret_cast<const char*>(&message), sizeof message}; }

core::Hello good_hello() {
  core::Hello hello;
  hello.header.type = static_cast<std::uint16_t>(core::Hello::kType), hello.header.length = sizeof hello;
  hello.abi_hash = core::abi_hash();
  return hello;
}

// Of all epoll sets of this process; only its servers have some.
std::size_t watched_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    for (std::string line; std::getline(info, line);) count += line.starts_with("tfd:") ? 1 : 0;
  }
  return count;
}

// What the server says to these first bytes of a connection before it hangs up.
int verdict_on(const std::string& name, const std::string& bytes, std::vector<int> fds = {}) {
  RawClient client(name);
  CHECK(client.send(bytes, std::move(fds)));
  return client.verdict();
}

template <class Change>
int verdict_on_hello(const std::string& name, Change&& change) {
  core::Hello hello = good_hello();
  change(hello);
  const core::UniqueFd pidfd = pidfd_of(getpid());
  return verdict_on(name, bytes_of(hello), {pidfd.get()});
}

}  // namespace

TEST_CASE("garbage of any length is told to be corrupt and dropped") {
  Victims victims;
  for (const std::size_t length : {1, 2, 15, 16, 17, 63, 64, 1000, 4095, 4096, 4097, 60'000}) {
    for (const char fill : {'\0', '\xff', 'G'}) {
      CAPTURE(length);
      CHECK(verdict_on(victims.server.name(), std::string(length, fill)) == GRADSHM_CORRUPT);
    }
  }
  victims.check_unharmed();
}

TEST_CASE("a packet of no bytes ends the connection") {
  Victims victims;
  CHECK(verdict_on(victims.server.name(), "") == 0);
  victims.check_unharmed();
}

TEST_CASE("truncated and overlong hellos are refused") {
  Victims victims;
  const std::string good = bytes_of(good_hello());
  const core::UniqueFd pidfd = pidfd_of(getpid());
  for (std::size_t length = 1; length < good.size(); ++length)
    CHECK(verdict_on(victims.server.name(), good.substr(0, length), {pidfd.get()}) == GRADSHM_CORRUPT);
  CHECK(verdict_on(victims.server.name(), good + "x", {pidfd.get()}) == GRADSHM_CORRUPT);
  CHECK(verdict_on(victims.server.name(), good + std::string(5000, 'x'), {pidfd.get()}) == GRADSHM_CORRUPT);
  victims.check_unharmed();
}

TEST_CASE("a wrong magic, version, ABI, length or type is refused with the fitting code") {
  Victims victims;
  const std::string& name = victims.server.name();
  CHECK(verdict_on_hello(name, [](auto& hello) { hello.header.magic ^= 1; }) == GRADSHM_CORRUPT);
  CHECK(verdict_on_hello(name, [](auto& hello) { ++hello.header.version; }) == GRADSHM_INCOMPATIBLE);
  CHECK(verdict_on_hello(name, [](auto& hello) { hello.abi_hash ^= 1; }) == GRADSHM_INCOMPATIBLE);
  CHECK(verdict_on_hello(name, [](auto& hello) { ++hello.abi_major; }) == GRADSHM_INCOMPATIBLE);
  CHECK(verdict_on_hello(name, [](auto& hello) { std::memset(hello.version, '\x1b', sizeof hello.version), hello.abi_hash = 0; }) == GRADSHM_INCOMPATIBLE);
  CHECK(verdict_on_hello(name, [](auto& hello) { --hello.header.length; }) == GRADSHM_CORRUPT);
  CHECK(verdict_on_hello(name, [](auto& hello) { hello.header.length = 0xffffffff; }) == GRADSHM_CORRUPT);
  for (const int type : {0, 2, 4, 6, 8, 9, 10, 77, 0xffff})
    CHECK(verdict_on_hello(name, [&](auto& hello) { hello.header.type = static_cast<std::uint16_t>(type); }) == GRADSHM_CORRUPT);
  victims.check_unharmed();
}

TEST_CASE("a hello without a pidfd, with too many, with a pipe or with somebody else's is refused") {
  Victims victims;
  const std::string& name = victims.server.name();
  const std::string hello = bytes_of(good_hello());
  const core::UniqueFd own = pidfd_of(getpid()), other = pidfd_of(getppid());
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  const core::UniqueFd reader(ends[0]), writer(ends[1]);
  CHECK(verdict_on(name, hello) == GRADSHM_CORRUPT);
  CHECK(verdict_on(name, hello, {own.get(), own.get()}) == GRADSHM_CORRUPT);
  CHECK(verdict_on(name, hello, std::vector<int>(8, own.get())) == GRADSHM_CORRUPT);
  CHECK(verdict_on(name, hello, {reader.get()}) == GRADSHM_CORRUPT);
  CHECK(verdict_on(name, hello, {good_manifest().fd()}) == GRADSHM_CORRUPT);
  CHECK(verdict_on(name, hello, {other.get()}) == GRADSHM_CORRUPT);
  victims.check_unharmed();
}

TEST_CASE("requests out of order are refused") {
  Victims victims;
  const std::string& name = victims.server.name();
  RawClient early_join(name), early_command(name), early_observe(name), second_hello(name), second_join(name), unjoined(name);
  const core::MemFd manifest = good_manifest();
  CHECK(early_join.send(core::Join{}, {manifest.fd()}));
  CHECK(early_join.verdict() == GRADSHM_CORRUPT);
  CHECK(early_command.command(core::CommandKind::ready));
  CHECK(early_command.verdict() == GRADSHM_CORRUPT);
  CHECK(early_observe.send(core::Observe{}));
  CHECK(early_observe.verdict() == GRADSHM_CORRUPT);
  CHECK(second_hello.hello());
  CHECK(second_hello.send(bytes_of(good_hello()), {pidfd_of(getpid()).get()}));
  CHECK(second_hello.verdict() == GRADSHM_CORRUPT);
  CHECK(second_join.hello());
  CHECK(second_join.join(manifest));
  CHECK(second_join.send(core::Join{}, {manifest.fd()}));
  CHECK(second_join.verdict() == GRADSHM_CORRUPT);
  RawClient burdened(name);
  CHECK(burdened.hello());
  CHECK(burdened.send(core::Observe{}, {manifest.fd()}));
  CHECK(burdened.verdict() == GRADSHM_CORRUPT);
  CHECK(unjoined.hello());
  CHECK(unjoined.command(core::CommandKind::leave));
  CHECK(unjoined.verdict() == GRADSHM_CORRUPT);
  victims.check_unharmed();
}

TEST_CASE("a client that never reads its answers is dropped") {
  Victims victims;
  RawClient client(victims.server.name());
  CHECK(client.hello());
  bool dropped = false;
  for (int i = 0; i < 100'000 && !dropped; ++i) {
    pollfd probe{client.fd(), POLLOUT, 0};
    poll(&probe, 1, 50);
    dropped = (probe.revents & (POLLHUP | POLLERR)) != 0 || (!client.send(core::Observe{}) && errno == EPIPE);
  }
  CHECK(dropped);
  victims.check_unharmed();
}

TEST_CASE("the server stops watching a pidfd when its connection ends, even if somebody else holds it still") {
  Victims victims;
  const std::size_t before = watched_descriptors();
  const core::UniqueFd held = pidfd_of(getpid());  // of a process that ends it would be readable for ever, and the loop would spin
  {
    RawClient client(victims.server.name());
    CHECK(client.send(good_hello(), {held.get()}));
    CHECK(client.refusal() == 0);
    CHECK(watched_descriptors() == before + 2);
  }
  victims.check_unharmed();
  nap();
  CHECK(watched_descriptors() == before);
}

TEST_CASE("the server stops listening to the doorbell of a worker that has left") {
  Victims victims;
  const std::size_t before = watched_descriptors();
  Worker worker = Worker::attach(victims.server.name(), floats(2), unadmitted());
  CHECK(watched_descriptors() == before + 3);
  worker.leave();
  CHECK(watched_descriptors() == before + 2);  // its socket and pidfd
  victims.check_unharmed();
}

TEST_CASE("many connections that say nothing keep nobody out") {
  Victims victims;
  std::vector<RawClient> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(victims.server.name());
  victims.check_unharmed();
  Worker other = Worker::attach(victims.server.name(), floats(2), unadmitted());
  CHECK(other.rank() == 2);
}

}  // namespace gradshm::test
