// Who takes part, from round to round.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "cases/support.hpp"

using namespace gradshm;
using namespace gradshm::test;
using namespace std::chrono_literals;

namespace {

// A process that takes part in every round until board[0] names it, then leaves; board[rank + 1]: rounds done.
int take_part(const std::string& name, int rank, Board& board) {
  Worker worker = attach(name, one_vector(256), rank);
  while (board.get(0) <= rank) {
    fill(worker, 1);
    if (!step(worker)) return 1;
    const auto count = static_cast<float>(worker.round(worker.info().committed_round).contributor_count);
    if (!holds(worker, count)) return 2;
    board.set(static_cast<std::size_t>(rank + 1), board.get(static_cast<std::size_t>(rank + 1)) + 1);
  }
  return 0;
}

struct Facts {
  std::vector<std::uint64_t> ids, offsets;
  bool operator==(const Facts&) const = default;
};

Facts facts_of(const Handle& handle) {
  Facts facts;
  for (std::size_t i = 0; i < handle.size(); ++i) facts.ids.push_back(handle.parameter(i).id), facts.offsets.push_back(handle.parameter(i).offset);
  return facts;
}

}  // namespace

TEST_CASE("S4: workers 1, then 4, then 2 with gradient 1 sum to 1, 4 and 2, under one server") {
  DaemonProcess daemon({"--op", "sum"});
  const pid_t pid = daemon.pid();
  Board board;
  const auto sums_to = [&](float value) {  // a reader sees it in the newest round, with the count beside it
    Observer observer = Observer::observe(daemon.name());
    return eventually([&] {
      float first = 0;
      std::vector<float> copy(256);
      const auto info = observer.read(0, copy.data(), copy.size() * sizeof first, 10s);
      return copy.front() == value && copy.back() == value && info.count == static_cast<std::uint32_t>(value);
    });
  };
  auto first = start_workers(1, [&](int rank) { return take_part(daemon.name(), rank + 3, board); });
  REQUIRE(reaches(board, 4, 1));
  CHECK(sums_to(1));
  auto more = start_workers(3, [&](int rank) { return take_part(daemon.name(), rank, board); });
  for (std::size_t i = 1; i <= 3; ++i) REQUIRE(reaches(board, i, 2));
  CHECK(sums_to(4));
  board.set(0, 2);  // ranks 0 and 1 leave
  CHECK(more[0].wait() == 0);
  CHECK(more[1].wait() == 0);
  CHECK(sums_to(2));
  board.set(0, 4);
  CHECK(more[2].wait() == 0);
  CHECK(exit_codes(first) == "0");
  CHECK(daemon.pid() == pid);
}

TEST_CASE("Z8: a worker that is killed and started again with new tensors of the same names has the same ids and offsets, and old handles are dead") {
  DaemonProcess daemon({"--op", "sum", "--layout", data_path("edge_cases.tsv")});
  const Layout layout = Layout::from_tsv(data_path("edge_cases.tsv"));
  Worker steady = attach(daemon.name(), layout, 0);
  const Facts facts = facts_of(steady);
  Board board;
  for (int life = 0; life < 3; ++life) {
    board.set(0, 0);
    Child worker([&] {
      Worker mine = Worker::attach(daemon.name(), layout, {.rank = 1, .wait_for_admission = false});
      if (!(facts_of(mine) == facts)) return 1;
      board.set(0, 1);
      board.wait_for(1, 1);
      return 2;
    });
    REQUIRE(reaches(board, 0, 1));
    worker.kill();
    CHECK(worker.wait() == 137);
  }
  // Within one process: the handle of an earlier incarnation knows that it is none any more.
  std::optional<Worker> old = Worker::attach(daemon.name(), layout, {.rank = 2, .wait_for_admission = false});
  old->leave();
  Worker next = Worker::attach(daemon.name(), layout, {.rank = 2, .wait_for_admission = false});
  CHECK(facts_of(next) == facts);
  CHECK(old->commit().status() == Outcome::evicted);
  CHECK(old->wait(1, 0ns) != Outcome::ok);
  CHECK_THROWS_AS(old->pause(), Error);
}

TEST_CASE("nccl#418: four workers on one device are the base case") {
  DaemonProcess daemon({"--op", "mean", "--expect", "4"});
  auto workers = start_workers(4, [&](int rank) {
    Worker worker = attach(daemon.name(), one_vector(4096), rank);
    for (int i = 0; i < 10; ++i) {
      fill(worker, static_cast<float>(4 * rank + i));
      if (!step(worker) || !holds(worker, static_cast<float>(6 + i))) return 1;
    }
    return 0;
  });
  CHECK(exit_codes(workers) == "0 0 0 0");
}

TEST_CASE("fairscale#890: a NaN in worker 1's last parameter is flagged to every reader, with the worker and the parameter") {
  DaemonProcess daemon({"--op", "sum", "--expect", "3"});
  const Layout layout = [] {
    Layout three;
    three.add("first", DType::f32, {64}).add("second", DType::f64, {8}).add("last", DType::f32, {100});
    return three;
  }();
  Board board;
  auto workers = start_workers(3, [&](int rank) {
    Worker worker = attach(daemon.name(), layout, rank);
    for (const char* name : {"first", "last"})
      for (float& g : worker.slot<float>(name)) g = 1;
    for (double& g : worker.slot<double>("second")) g = 1;
    if (rank == 1) worker.slot<float>("last")[99] = std::numeric_limits<float>::quiet_NaN();
    if (!step(worker)) return 1;
    board.set(static_cast<std::size_t>(rank), 1);
    const gradshm_round_t round = worker.round(1);
    std::uint64_t elements = 0;
    if (gradshm_round_nonfinite(worker.get(), 1, 1, &elements) != GRADSHM_OK || elements != 1) return 2;
    const bool flagged = round.nonfinite_ranks[0] == 0b10 && round.nonfinite_result == 1;
    if (!flagged || !std::isnan(worker.result<float>("last")[99]) || worker.result<float>("last")[98] != 3) return 3;
    board.wait_for(5, 1);
    return 0;
  });
  for (std::size_t rank = 0; rank < 3; ++rank) REQUIRE(reaches(board, rank, 1));
  Observer observer = Observer::observe(daemon.name());
  CHECK(observer.round(1).nonfinite_ranks[0] == 0b10);
  std::vector<std::string> bad;  // which parameter: the one whose sum is not finite
  for (std::size_t i = 0; i < observer.size(); ++i) {
    const auto described = observer.parameter(i);
    std::vector<std::byte> copy(described.bytes);
    observer.read(i, copy.data(), copy.size());
    for (std::size_t at = 0; at < described.numel; ++at) {
      float f = 0;
      double d = 0;
      const bool is_float = described.dtype == GRADSHM_F32;
      std::memcpy(is_float ? static_cast<void*>(&f) : &d, copy.data() + at * (is_float ? 4 : 8), is_float ? 4 : 8);
      if (!std::isfinite(is_float ? f : d)) bad.emplace_back(described.name);
    }
  }
  CHECK(bad == std::vector<std::string>{"last"});
  board.set(5, 1);
  CHECK(exit_codes(workers) == "0 0 0");
}
