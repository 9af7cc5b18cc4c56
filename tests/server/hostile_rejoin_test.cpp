// Hand-overs that no killed server's worker would make.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "memory/beacon.hpp"
#include "memory/slot.hpp"
#include "protocol/member_word.hpp"
#include "server/raw_client.hpp"

namespace gradshm::test {
namespace {

// What a worker of rank 0 has from a server that summed core_floats(2) and closed `closed_round`.
struct Estate {
  core::Layout layout = core_floats(2, 4, core::kDefaultBucketBytes);
  core::SlotShape shape = core::slot_shape(layout);
  core::ControlObject control;
  core::MemFd table = core::MemFd::sealed_copy("layout", core::encode_layout(layout));
  core::MemFd slot = core::create_slot(shape, 7, layout.layout_fingerprint(), 5, 0);
  core::MemFd manifest = good_manifest();
  core::UniqueFd doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  explicit Estate(std::uint64_t closed_round = 3, std::uint32_t op = GRADSHM_SUM) : control(make_control(op)) {
    slot.allocate();
    control.view.words->closed_round = closed_round;
    add_member(0);
  }
  void add_member(unsigned rank, core::MemberState state = core::MemberState::member) {
    control.view.members[rank].word = core::member_word(5 + rank, state);
    control.view.members[rank].pid = getpid();
  }
  core::ControlObject make_control(std::uint32_t op) const {
    core::ControlHeader header;
    header.buckets = static_cast<std::uint32_t>(layout.buckets().size()), header.groups = 1, header.parameters = 2;
    header.op = op, header.pid_namespace = core::own_pid_namespace();
    return core::create_control(header, 7, layout.layout_fingerprint());
  }
  [[nodiscard]] std::vector<int> descriptors() const { return {control.file.fd(), table.fd(), slot.fd(), doorbell.get(), manifest.fd()}; }
};

core::Rejoin request(unsigned rank = 0) {
  core::Rejoin message;
  message.rank = rank, message.generation = 5 + rank, message.incarnation = 7;
  return message;
}

// The code that a new connection's hand-over is answered with; 0: it is taken back.
int hand_over(const std::string& name, const core::Rejoin& message, const std::vector<int>& fds) {
  RawClient client(name);
  REQUIRE(client.hello());
  REQUIRE(client.send(message, fds));
  return client.refusal();
}

gradshm_server_options_t impatient() {
  auto options = summing(1);
  options.rejoin_timeout_ns = 200'000'000;
  return options;
}

}  // namespace

TEST_CASE("a hand-over to a server whose workers are there is refused, whatever it brings, and harms nobody") {
  Victims victims;
  const Estate estate(1'000'000);
  CHECK(hand_over(victims.server.name(), request(), estate.descriptors()) == GRADSHM_EVICTED);
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const core::UniqueFd reader(ends[0]), writer(ends[1]), null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const core::MemFd unsealed = core::MemFd::create("unsealed", 1 << 20);
  const core::MemFd empty = core::MemFd::sealed_copy("empty", "");
  for (std::size_t position = 0; position < 5; ++position)
    for (const int odd : {reader.get(), writer.get(), null.get(), unsealed.fd(), empty.fd()}) {
      auto fds = estate.descriptors();
      fds[position] = odd;
      CHECK(hand_over(victims.server.name(), request(), fds) < 0);
    }
  victims.check_unharmed();
}

TEST_CASE("a hand-over without a hello, with a rank beyond all, with other descriptors or a second one ends its connection only") {
  Victims victims;
  const Estate estate;
  RawClient rude(victims.server.name());
  CHECK(rude.send(request(), estate.descriptors()));
  CHECK(rude.verdict() == GRADSHM_CORRUPT);
  CHECK(hand_over(victims.server.name(), request(256), estate.descriptors()) == GRADSHM_CORRUPT);
  CHECK(hand_over(victims.server.name(), request(0xffffffff), estate.descriptors()) == GRADSHM_CORRUPT);
  for (std::size_t count = 0; count < 5; ++count) {
    auto fds = estate.descriptors();
    fds.resize(count);
    CHECK(hand_over(victims.server.name(), request(), fds) == GRADSHM_CORRUPT);
  }
  victims.check_unharmed();
}

TEST_CASE("a server without workers and beacon takes the word of the first hand-over, and refuses one that does not fit together") {
  ServerThread server(impatient());
  const core::MemFd short_slot = core::MemFd::create("slot", 4096);
  const core::MemFd unsealed = core::MemFd::create("unsealed", 1 << 20);
  const core::MemFd other_layout = core::MemFd::sealed_copy("layout", core::encode_layout(core_floats(3, 4, core::kDefaultBucketBytes)));
  const core::MemFd cut_layout = core::MemFd::sealed_copy("layout", core::encode_layout(core_floats(2, 4, core::kDefaultBucketBytes)).substr(0, 100));
  const core::UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));  // epoll takes no plain file
  const Estate estate;
  const std::pair<std::size_t, int> wrong[] = {{1, other_layout.fd()}, {1, cut_layout.fd()}, {1, unsealed.fd()}, {2, short_slot.fd()},
                                               {2, unsealed.fd()},     {3, file.get()},      {4, unsealed.fd()}, {4, other_layout.fd()}};
  for (const auto& [position, fd] : wrong) {
    auto fds = estate.descriptors();
    fds[position] = fd;
    CHECK(hand_over(server.name(), request(), fds) < 0);
  }
  Worker worker = Worker::attach(server.name(), floats(2), {.rank = 0});  // held back, then admitted: nobody came
  check_exact_round({&worker});
}

TEST_CASE("a forged list of members that never come delays newcomers by the rejoin time-out and no more") {
  ServerThread server(impatient());
  Estate estate(std::uint64_t{1} << 60);
  for (unsigned rank = 1; rank < 256; ++rank) estate.add_member(rank);
  RawClient client(server.name());
  REQUIRE(client.hello());
  REQUIRE(client.send(request(), estate.descriptors()));
  CHECK(client.receive().type == core::MessageType::rejoin_ok);
  CHECK(client.send(request(), estate.descriptors()));
  CHECK(client.verdict() == GRADSHM_CORRUPT);  // a second one on the same connection
  Worker worker = Worker::attach(server.name(), floats(2), {.rank = 1});
  CHECK(worker.wait_admitted(kLong) > std::uint64_t{1} << 60);
  check_exact_round({&worker});
}

TEST_CASE("a hand-over that has seen more rounds raises the floor, evicts who came back with less, and one with less is evicted") {
  ServerThread server(impatient());
  Estate first(3), ahead(4), behind(2);
  for (Estate* estate : {&first, &ahead, &behind}) estate->add_member(1), estate->add_member(2), estate->add_member(3);
  RawClient early(server.name()), late(server.name());
  REQUIRE(early.hello());
  REQUIRE(late.hello());
  REQUIRE(early.send(request(0), first.descriptors()));
  core::Packet answer = early.receive();
  REQUIRE(answer.type == core::MessageType::rejoin_ok);
  const core::ControlObject control = core::open_control(core::MemFd(std::move(answer.fds[0])));
  CHECK(control.view.words->closed_round == 3);
  CHECK(core::state_of(control.view.members[0].word) == core::MemberState::member);
  CHECK(hand_over(server.name(), request(1), behind.descriptors()) == GRADSHM_EVICTED);
  REQUIRE(late.send(request(2), ahead.descriptors()));
  REQUIRE(late.receive().type == core::MessageType::rejoin_ok);
  CHECK(control.view.words->closed_round == 4);
  CHECK(core::state_of(control.view.members[0].word) != core::MemberState::member);
}

TEST_CASE("another operation is refused before anything is taken") {
  ServerThread server(impatient());
  const Estate estate(3, GRADSHM_MEAN);
  CHECK(hand_over(server.name(), request(), estate.descriptors()) == GRADSHM_INCOMPATIBLE);
}

}  // namespace gradshm::test
