#include "protocol/wire.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

using namespace gradshm::core;

namespace {

struct Pair {
  UniqueFd a, b;
  Pair() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    a.reset(fds[0]), b.reset(fds[1]);
  }
};

Status status_of_receive(const Pair& pair) {
  try {
    Packet packet;
    static_cast<void>(receive_packet(pair.b.get(), packet));
    return Status::ok;
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace

TEST_CASE("a message arrives whole, with its descriptors closed on exec") {
  const Pair pair;
  Join join;
  join.rank = 17;
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 1> fds{file.get()};
  REQUIRE(send_message(pair.a.get(), join, fds));
  Packet packet;
  REQUIRE(receive_packet(pair.b.get(), packet) == Received::packet);
  CHECK(parse<Join>(packet, 1).rank == 17);
  CHECK((fcntl(packet.fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("nothing to read and a closed peer are told apart") {
  Pair pair;
  Packet packet;
  CHECK(receive_packet(pair.b.get(), packet) == Received::would_block);
  pair.a.reset();
  CHECK(receive_packet(pair.b.get(), packet) == Received::end_of_file);
}

TEST_CASE("garbage of every length is an error and no message") {
  const Pair pair;
  for (const std::size_t bytes : {1u, 3u, 15u, 16u, 17u, 100u, 4096u, 5000u}) {
    const std::string garbage(bytes, 'g');
    REQUIRE(send(pair.a.get(), garbage.data(), garbage.size(), 0) == static_cast<ssize_t>(bytes));
    CHECK(status_of_receive(pair) == Status::corrupt);
  }
}

TEST_CASE("a message that lies about its length, or of another wire version, is refused") {
  const Pair pair;
  Join join;
  join.header.type = static_cast<std::uint16_t>(Join::kType), join.header.length = sizeof join + 1;
  REQUIRE(send_packet(pair.a.get(), &join, sizeof join, {}));
  CHECK(status_of_receive(pair) == Status::corrupt);
  join.header.length = sizeof join, join.header.version = kWireVersion + 1;
  REQUIRE(send_packet(pair.a.get(), &join, sizeof join, {}));
  CHECK(status_of_receive(pair) == Status::incompatible);
}

TEST_CASE("another type, length or number of descriptors than expected is refused") {
  const Pair pair;
  REQUIRE(send_message(pair.a.get(), Ack{}));
  Packet packet;
  REQUIRE(receive_packet(pair.b.get(), packet) == Received::packet);
  CHECK_NOTHROW(static_cast<void>(parse<Ack>(packet)));
  CHECK_THROWS_AS(static_cast<void>(parse<JoinOk>(packet)), Error);
  CHECK_THROWS_AS(static_cast<void>(parse<Ack>(packet, 1)), Error);
  packet.bytes.resize(packet.bytes.size() - 1);
  CHECK_THROWS_AS(static_cast<void>(parse<Ack>(packet)), Error);
}

TEST_CASE("an error reply becomes the error that it carries, and a nonsense code becomes corrupt") {
  const Pair pair;
  REQUIRE(send_message(pair.a.get(), error_reply(Status::rank_taken, "rank 3 is taken")));
  Packet packet;
  REQUIRE(receive_packet(pair.b.get(), packet) == Received::packet);
  CHECK_THROWS_WITH_AS(static_cast<void>(parse<JoinOk>(packet)), "rank 3 is taken", Error);
  ErrorReply reply = error_reply(Status::full, "full");
  reply.code = 12345, reply.text_bytes = UINT32_MAX;
  REQUIRE(send_message(pair.a.get(), reply));
  REQUIRE(receive_packet(pair.b.get(), packet) == Received::packet);
  try {
    static_cast<void>(parse<JoinOk>(packet));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.status() == Status::corrupt);
  }
}

TEST_CASE("a sentence that is too long for a reply is cut, and sending to a closed peer raises no signal") {
  Pair pair;
  const ErrorReply reply = error_reply(Status::full, std::string(10'000, 'x'));
  CHECK(reply.text_bytes == sizeof reply.text);
  pair.b.reset();
  CHECK_FALSE(send_message(pair.a.get(), reply));
}

TEST_CASE("waiting for an answer ends with the deadline or with the peer") {
  Pair pair;
  const auto status_of_wait = [&](const Deadline& deadline) {
    try {
      static_cast<void>(await_packet(pair.b.get(), deadline));
      return Status::ok;
    } catch (const Error& error) {
      return error.status();
    }
  };
  CHECK(status_of_wait(Deadline::after(1'000'000)) == Status::timeout);
  pair.a.reset();
  CHECK(status_of_wait(Deadline::after(-1)) == Status::daemon_lost);
}
