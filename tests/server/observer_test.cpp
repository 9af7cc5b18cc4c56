// Observers only read.
#include <array>
#include <atomic>

#include "server/workers.hpp"

namespace gradshm::test {

TEST_CASE("before the layout is known there is nothing to observe") {
  ServerThread server;
  const Failure refused = failure_of([&] { static_cast<void>(Observer::observe(server.name())); });
  CHECK(refused.code == GRADSHM_NOT_FOUND);
  CHECK(refused.says("has no layout yet"));
  Worker worker = Worker::attach(server.name(), floats(2));
  CHECK(Observer::observe(server.name()).size() == 2);
}

TEST_CASE("an observer reads parameters of closed rounds and waits for rounds") {
  Team team(floats(2), summing(2));
  Observer observer = Observer::observe(team.server.name());
  std::array<float, 4> copy{};
  CHECK(observer.info().rank == -1);
  CHECK(observer.parameter("p1").mine == 0);
  CHECK(gradshm_read(observer.get(), 1, copy.data(), sizeof copy, 0, nullptr) == GRADSHM_NOT_CLOSED);
  CHECK(observer.wait(1, 10ms) == Outcome::timeout);
  std::thread waiter([&] { CHECK(observer.wait(1, kLong) == Outcome::ok); });
  check_exact_round({&team[0], &team[1]});
  waiter.join();
  CHECK(observer.info().closed_round == 1);
  const auto info = observer.read(1, copy.data(), sizeof copy);
  CHECK(info.round == 1);
  CHECK(info.count == 2);
  CHECK(copy == std::array<float, 4>{3, 3, 3, 3});
  CHECK(all_are(observer, 0, 3));
  CHECK(observer.info().bytes_copied == sizeof copy);
  CHECK(observer.round(1).member_count == 2);
}

TEST_CASE("an observer may wait only for rounds that it names") {
  Team team(floats(1), 1);
  Observer observer = Observer::observe(team.server.name());
  CHECK(observer.wait(0) == Outcome::not_committed);
  CHECK(gradshm_poll(observer.get(), 1) == GRADSHM_NOT_CLOSED);
  CHECK(team[0].abstain().wait(kLong) == Outcome::empty);
  CHECK(observer.wait(1) == Outcome::empty);
}

TEST_CASE("what only workers can do is refused to observers") {
  Team team(floats(1), 1);
  Observer observer = Observer::observe(team.server.name());
  void* slot = nullptr;
  const auto refused = [](int code) { return code == GRADSHM_NOT_MEMBER && answer(code).says("attach as a worker"); };
  CHECK(refused(gradshm_commit(observer.get(), GRADSHM_ALL, 0, nullptr, nullptr)));
  CHECK(refused(gradshm_slot(observer.get(), 0, &slot)));
  CHECK(refused(gradshm_ready(observer.get())));
  CHECK(refused(gradshm_pause(observer.get())));
  CHECK(refused(gradshm_resume(observer.get())));
  CHECK(refused(gradshm_leave(observer.get())));
  CHECK(refused(gradshm_wait_admitted(observer.get(), 0, nullptr)));
  CHECK(slot == nullptr);
}

TEST_CASE("a read with another size than the parameter's is refused with both sizes") {
  Team team(floats(1), 1);
  commit_and_wait(team[0]);
  std::array<float, 8> copy{-1};
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{15}, std::size_t{17}, sizeof copy}) {
    const Failure refused = answer(gradshm_read(team[0].get(), 0, copy.data(), bytes, 0, nullptr));
    CHECK(refused.code == GRADSHM_INVALID);
    CHECK(refused.says("has 16 bytes, the buffer " + std::to_string(bytes)));
  }
  CHECK(copy[0] == -1);
  CHECK(gradshm_read(team[0].get(), 0, nullptr, 16, 0, nullptr) == GRADSHM_INVALID);
}

TEST_CASE("reads while rounds close are never a mixture of two rounds") {
  constexpr std::int64_t kNumel = 50'000;
  Team team(floats(1, kNumel), summing(1));
  Observer observer = Observer::observe(team.server.name());
  std::atomic<bool> over{false};
  std::thread reader([&] {
    std::vector<float> copy(kNumel);
    std::size_t good = 0, torn = 0;
    while (!over || good == 0) {
      auto info = detail::sized<gradshm_result_info_t>();
      if (gradshm_read(observer.get(), 0, copy.data(), copy.size() * sizeof(float), 1'000'000, &info) != GRADSHM_OK) continue;
      ++good;
      const auto expected = static_cast<float>(info.round);
      torn += std::all_of(copy.begin(), copy.end(), [&](float value) { return value == expected; }) ? 0 : 1;
    }
    CHECK(torn == 0);
  });
  for (int round = 1; round <= 200; ++round) fill_all(team[0], static_cast<float>(round)), commit_and_wait(team[0]);
  over = true;
  reader.join();
}

TEST_CASE("an observer sees the server's end, and what was closed stays readable") {
  Team team(floats(1), 1);
  commit_and_wait(team[0]);
  Observer observer = Observer::observe(team.server.name());
  std::thread waiter([&] { CHECK(observer.wait(9, kLong) == Outcome::daemon_lost); });
  nap();
  team.server.stop();
  waiter.join();
  float copy[4] = {};
  CHECK(observer.read(0, copy, sizeof copy).round == 1);
}

TEST_CASE("observers do not count as workers") {
  auto options = summing(1);
  options.max_workers = 1;
  Team team(floats(1), options);
  std::vector<Observer> observers;
  for (int i = 0; i < 5; ++i) observers.push_back(Observer::observe(team.server.name()));
  check_exact_round({&team[0]});
  CHECK(observers[4].round(1).member_count == 1);
}

}  // namespace gradshm::test
