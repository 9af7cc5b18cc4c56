// Clients that greet properly and then join with bad manifests, ranks and slots, or vanish half-way.
#include <fcntl.h>

#include "server/raw_client.hpp"

namespace gradshm::test {

TEST_CASE("commands before the slot is allocated, unknown ones and a second allocation are refused") {
  Victims victims;
  const core::MemFd manifest = good_manifest();
  for (const std::uint32_t kind : {2u, 3u, 4u, 0u, 6u, 0xffffffffu}) {
    RawClient client(victims.server.name());
    CHECK(client.hello());
    CHECK(client.join(manifest));
    CHECK(client.command(static_cast<core::CommandKind>(kind)));
    CHECK(client.verdict() == GRADSHM_CORRUPT);
  }
  RawClient twice(victims.server.name());
  CHECK(twice.hello());
  CHECK(twice.join(manifest));
  twice.slot().allocate();
  for (int i = 0; i < 2; ++i) CHECK(twice.command(core::CommandKind::allocated));
  CHECK(twice.verdict() == GRADSHM_CORRUPT);
  victims.check_unharmed();
}

TEST_CASE("a slot that was said to be allocated and is not is noticed, and may be allocated then") {
  Victims victims;
  RawClient client(victims.server.name());
  CHECK(client.hello());
  CHECK(client.join(good_manifest()));
  CHECK(client.command(core::CommandKind::allocated));
  CHECK(client.refusal() == GRADSHM_NO_SPACE);
  victims.check_unharmed();
  client.slot().allocate();
  CHECK(client.command(core::CommandKind::allocated));
  CHECK(client.refusal() == 0);
  victims.check_unharmed();
}

TEST_CASE("a worker cannot resize its slot behind the server's back") {
  Victims victims;
  RawClient client(victims.server.name());
  CHECK(client.hello());
  CHECK(client.join(good_manifest()));
  CHECK(ftruncate(client.slot().fd(), 0) != 0);
  CHECK(ftruncate(client.slot().fd(), 1 << 20) != 0);
  client.slot().allocate();
  CHECK(client.command(core::CommandKind::allocated, 1));
  CHECK(client.refusal() == 0);
  CHECK(ftruncate(client.slot().fd(), 0) != 0);
  victims.check_unharmed();  // the round that was open goes on without it
}

TEST_CASE("a manifest that is no sealed memfd, missing, or doubled is refused") {
  Victims victims;
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  const core::UniqueFd reader(ends[0]), writer(ends[1]), null(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const core::UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const core::MemFd unsealed = core::MemFd::create("unsealed", 4096), manifest = good_manifest();
  const std::vector<std::vector<int>> sets{{}, {reader.get()}, {null.get()}, {file.get()}, {unsealed.fd()}, {manifest.fd(), manifest.fd()}};
  for (const auto& fds : sets) {
    RawClient client(victims.server.name());
    CHECK(client.hello());
    CHECK(client.send(core::Join{}, fds));
    CHECK(client.verdict() == GRADSHM_CORRUPT);
  }
  victims.check_unharmed();
}

TEST_CASE("a damaged manifest is refused wherever the damage is") {
  Victims victims;
  const std::string good = core::encode_layout(core_floats(2, 4, core::kDefaultBucketBytes));
  std::vector<std::string> bad{"", "x", good.substr(0, good.size() / 2), good + "x", std::string(10'000, '\xff')};
  for (std::size_t at = 0; at < good.size(); at += 7) bad.push_back(good), bad.back()[at] ^= 0x41;
  for (const std::string& content : bad) {
    RawClient client(victims.server.name());
    CHECK(client.hello());
    CHECK(client.send(core::Join{}, {core::MemFd::sealed_copy("bad", content).fd()}));
    const int code = client.verdict();
    CHECK((code == GRADSHM_CORRUPT || code == GRADSHM_INCOMPATIBLE));
  }
  victims.check_unharmed();
}

TEST_CASE("a rank out of range or taken is refused and the connection may try again") {
  Victims victims;
  RawClient client(victims.server.name());
  CHECK(client.hello());
  const core::MemFd manifest = good_manifest();
  for (const auto& [rank, code] : {std::pair{256, GRADSHM_INVALID}, {1 << 30, GRADSHM_INVALID}, {0, GRADSHM_RANK_TAKEN}}) {
    core::Join join;
    join.rank = rank;
    std::memset(join.label, 'L', sizeof join.label);  // no final zero
    CHECK(client.send(join, {manifest.fd()}));
    CHECK(client.refusal() == code);
  }
  CHECK(client.join(manifest, 5));
  victims.check_unharmed();
}

TEST_CASE("a client may vanish in every state") {
  Victims victims;
  const core::MemFd manifest = good_manifest();
  for (int state = 0; state < 6; ++state) {
    CAPTURE(state);
    {
      RawClient client(victims.server.name());
      if (state >= 1) CHECK(client.hello());
      if (state >= 2) CHECK(client.join(manifest, 9));
      if (state >= 3) client.slot().allocate();
      if (state >= 4) CHECK(client.command(core::CommandKind::allocated, state == 5 ? 1 : 0));
      if (state >= 4) CHECK(client.refusal() == 0);
    }
    victims.check_unharmed();
    victims.check_unharmed();
  }
  Worker normal = Worker::attach(victims.server.name(), floats(2), unadmitted(9));
  CHECK(normal.rank() == 9);
}

TEST_CASE("the first worker's refused manifest does not become the layout") {
  ServerThread server(summing(1));
  RawClient client(server.name());
  CHECK(client.hello());
  CHECK(client.send(core::Join{}, {core::MemFd::sealed_copy("bad", "nonsense").fd()}));
  CHECK(client.verdict() == GRADSHM_CORRUPT);
  Worker worker = Worker::attach(server.name(), floats(7));
  check_exact_round({&worker});
}

}  // namespace gradshm::test
