// Looking into a worker's slot from outside.
#include "client/slot_view.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <numeric>

#include "client/handle.hpp"
#include "server/raw_client.hpp"

namespace gradshm::test {

namespace {

struct Onlooker {
  explicit Onlooker(const std::string& name) : instance(name), handle(core::Handle::observe(name, core::Deadline::after(kLongNs))) {}
  [[nodiscard]] core::SlotView look(unsigned rank, std::size_t parameter) const {
    return {instance, handle->view(), rank, parameter, core::Deadline::after(kLongNs)};
  }
  // What the attempt is refused with.
  [[nodiscard]] std::pair<core::Status, std::string> refusal(unsigned rank, std::size_t parameter) const {
    try {
      static_cast<void>(look(rank, parameter));
    } catch (const core::Error& error) {
      return {error.status(), error.what()};
    }
    return {core::Status::ok, ""};
  }
  std::string instance;
  std::unique_ptr<core::Handle> handle;
};

using Four = std::array<float, 4>;

}  // namespace

TEST_CASE("what a worker wrote is seen before, after and past its commit, and called so") {
  Team team(floats(2), summing(2, kOneEach));
  Onlooker onlooker(team.server.name());
  const core::SlotView view = onlooker.look(1, 1);
  CHECK(view.pid() == getpid());
  CHECK(view.generation() == onlooker.look(0, 1).generation() + 1);
  fill(team[1], 1, 2.5f);
  Four copy{};
  core::SlotCopy seen = view.read(copy.data());
  CHECK(copy == Four{2.5f, 2.5f, 2.5f, 2.5f});
  CHECK(seen.state == core::SlotState::writing);
  CHECK(seen.round == 0);
  CHECK(commit(team[1], {.weight = 3}) == Outcome::ok);
  seen = view.read(copy.data());
  CHECK(seen.state == core::SlotState::committed);
  CHECK(seen.round == 1);
  CHECK(seen.weight == 3);
  CHECK(seen.present);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[1]) == Outcome::ok);
  seen = view.read(copy.data());
  CHECK(seen.state == core::SlotState::closed);
  CHECK(seen.round == 1);
  CHECK(copy == Four{2.5f, 2.5f, 2.5f, 2.5f});
}

TEST_CASE("a parameter that a commit leaves out is not present in it") {
  Team team(floats(3), summing(2));
  Onlooker onlooker(team.server.name());
  CHECK(team[0].commit_parameter(1).status() == Outcome::ok);
  CHECK(team[0].commit({.presence = Presence::marked}).status() == Outcome::ok);
  Four copy{};
  CHECK_FALSE(onlooker.look(0, 0).read(copy.data()).present);
  CHECK(onlooker.look(0, 1).read(copy.data()).present);
  CHECK(onlooker.look(0, 1).read(copy.data()).state == core::SlotState::committed);
  CHECK(team[1].abstain().status() == Outcome::ok);
  CHECK_FALSE(onlooker.look(1, 1).read(copy.data()).present);
}

TEST_CASE("bytes that are called committed are never a mixture") {
  constexpr std::int64_t kNumel = 20'001;  // no multiple of a word
  Team team(floats(1, kNumel), summing(2));
  Onlooker onlooker(team.server.name());
  const core::SlotView view = onlooker.look(0, 0);
  std::atomic<bool> over{false};
  std::thread reader([&] {
    std::vector<float> copy(kNumel);
    std::size_t torn = 0, good = 0;
    while (!over || good == 0) {
      const core::SlotCopy seen = view.read(copy.data());
      if (seen.state != core::SlotState::committed) continue;
      ++good;
      torn += std::all_of(copy.begin(), copy.end(), [&](float value) { return value == static_cast<float>(seen.round); }) ? 0 : 1;
    }
    CHECK(torn == 0);
  });
  for (int round = 1; round <= 300; ++round) {
    fill_all(team[0], static_cast<float>(round));
    CHECK(commit(team[0]) == Outcome::ok);
    if (round == 300) break;  // stays open: the reader sees at least this one
    CHECK(team[1].abstain().status() == Outcome::ok);
    CHECK(wait_for(team[0]) == Outcome::ok);
    CHECK(wait_for(team[1]) == Outcome::ok);
  }
  over = true;
  reader.join();
}

TEST_CASE("who is not there is not found, and those who are there are named") {
  Team team(floats(1), summing(2));
  Onlooker onlooker(team.server.name());
  const auto [status, text] = onlooker.refusal(7, 0);
  CHECK(status == core::Status::not_found);
  CHECK(text.find("no worker 7 of") != std::string::npos);
  CHECK(text.find("there are workers 0, 1") != std::string::npos);
  CHECK(onlooker.refusal(4'000'000'000u, 0).first == core::Status::not_found);
  team.workers.clear();
  CHECK(onlooker.refusal(0, 0).first == core::Status::not_found);
}

TEST_CASE("a parameter that a partial worker has not registered is not in its slot") {
  Team team(floats(2), summing(1));
  AttachOptions options = unadmitted(3);
  options.partial = true;
  const Worker partial = Worker::attach(team.server.name(), floats(1), options);
  Onlooker onlooker(team.server.name());
  const auto [status, text] = onlooker.refusal(3, 1);
  CHECK(status == core::Status::not_found);
  CHECK(text.find("without 'p1'") != std::string::npos);
  Four copy{};
  CHECK(onlooker.look(3, 0).read(copy.data()).round == 0);
}

TEST_CASE("the descriptor that an onlooker gets cannot be mapped writable") {
  Team team(floats(1), summing(1));
  RawClient client(team.server.name());
  REQUIRE(client.hello());
  REQUIRE(client.send(core::ObserveSlot{}));
  const core::Packet packet = client.receive();
  CHECK(core::parse<core::ObserveSlotOk>(packet, 1).generation != 0);
  const int fd = packet.fds[0].get();
  CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  CHECK(write(fd, "x", 1) == -1);
  CHECK(ftruncate(fd, 0) == -1);
  void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK(mprotect(mapped, 4096, PROT_READ | PROT_WRITE) == -1);
  munmap(mapped, 4096);
}

TEST_CASE("requests for slots that make no sense are refused, and the connection stays") {
  Victims victims;
  RawClient client(victims.server.name());
  REQUIRE(client.hello());
  core::ObserveSlot request;
  request.parameter = 2;
  REQUIRE(client.send(request));
  CHECK(client.refusal() == GRADSHM_INVALID);
  request.parameter = 0, request.rank = 256;
  REQUIRE(client.send(request));
  CHECK(client.refusal() == GRADSHM_NOT_FOUND);
  request.rank = 0;
  REQUIRE(client.send(request));
  CHECK(client.receive().type == core::MessageType::observe_slot_ok);
  victims.check_unharmed();
}

TEST_CASE("a slot that is not allocated yet, and one before the hello or the layout, are refused") {
  ServerThread server;
  RawClient early(server.name());
  REQUIRE(early.send(core::ObserveSlot{}));
  CHECK(early.verdict() == GRADSHM_CORRUPT);
  RawClient client(server.name());
  REQUIRE(client.hello());
  REQUIRE(client.send(core::ObserveSlot{}));
  CHECK(client.refusal() == GRADSHM_NOT_FOUND);
  RawClient worker(server.name());
  REQUIRE(worker.hello());
  REQUIRE(worker.join(good_manifest()));
  REQUIRE(client.send(core::ObserveSlot{}));
  CHECK(client.refusal() == GRADSHM_NOT_FOUND);
}

}  // namespace gradshm::test
