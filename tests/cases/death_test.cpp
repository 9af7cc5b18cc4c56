// kill -9 of a worker at any moment: the others go on, and every bucket has one and the same set of contributors.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

constexpr int kVictim = 1;
constexpr std::size_t kBuckets = 8;
constexpr float kNumbers[] = {1, 10, 100, 1000};
enum Word : std::size_t { kVictimReady, kMayCommit, kSeen, kMayEnd, kDone /* + rank */ };

struct Expected {
  float sum;
  std::uint64_t contributors;
  std::uint32_t count;
};
constexpr Expected kEverybody{1111, 0b1111, 4}, kWithoutVictim{1101, 0b1101, 3};

// With --bucket-bytes 1024 each parameter is a bucket.
Layout eight_buckets() {
  Layout layout;
  for (std::size_t i = 0; i < kBuckets; ++i) layout.add("layer" + std::to_string(i), DType::f32, {256});
  return layout;
}

[[noreturn]] void linger() {
  while (true) ::pause();
}

[[noreturn]] void write_for_ever(Worker& worker, Board& board) {
  for (float value = 0;; value += 1) {
    fill(worker, value);
    board.set(kVictimReady, 1);
  }
}

[[noreturn]] void commit_some(Worker& worker, Board& board, std::size_t buckets) {
  for (std::size_t bucket = 0; bucket < buckets; ++bucket)
    if (worker.commit_bucket(bucket).status() != Outcome::ok) _exit(1);
  board.set(kVictimReady, 1);
  linger();
}

void check_round(Verdict& verdict, const Worker& worker, const Expected& expected) {
  verdict.expect(worker.info().buckets == kBuckets);
  verdict.expect(holds(worker, expected.sum));
  verdict.expect(worker.round(1).contributor_count == expected.count);
  verdict.expect(worker.round(1).contributors[0] == expected.contributors);
  for (std::size_t index = 0; index < worker.size(); ++index) verdict.expect(worker.result_info(index).count == expected.count);
}

// Tells the parent once the server has summed bucket 0 with everybody in it, which is before the round closes.
void watch_first_bucket(Verdict& verdict, const Worker& worker, Board& board) {
  const volatile float* first = worker.result<float>("layer0").data();
  verdict.expect(eventually([&] { return *first == kEverybody.sum; }));
  board.set(kSeen, 1);
}

int survive(const std::string& instance, int rank, Board& board, const Expected& expected, bool is_watching) {
  Verdict verdict;
  Worker worker = attach(instance, eight_buckets(), rank);
  fill(worker, kNumbers[rank]);
  verdict.expect(reaches(board, kVictimReady, 1) && reaches(board, kMayCommit, 1));
  const Round round = worker.commit();
  if (is_watching && rank == 0) watch_first_bucket(verdict, worker, board);
  verdict.expect(round.wait(kPatience) == Outcome::ok);
  check_round(verdict, worker, expected);
  board.set(kDone + static_cast<std::size_t>(rank), 1);
  verdict.expect(reaches(board, kMayEnd, 1));
  return verdict.code();
}

using VictimBody = void (*)(Worker&, Board&);

std::vector<Child> start_four(const std::string& instance, Board& board, const Expected& expected, bool is_watching, VictimBody victim) {
  return start_workers(4, [&, victim](int rank) {
    if (rank != kVictim) return survive(instance, rank, board, expected, is_watching);
    Worker worker = attach(instance, eight_buckets(), rank);
    fill(worker, kNumbers[rank]);
    victim(worker, board);
    return 0;
  });
}

// The survivors still hold their slots: what is gone is the victim's memory.
void check_freed_and_end(const DaemonProcess& daemon, std::vector<Child>& workers, Board& board) {
  for (std::size_t rank : {0u, 2u, 3u}) CHECK(reaches(board, kDone + rank, 1));
  CHECK(eventually([&] { return mappings(daemon.pid(), "gradshm-slot").size() == 3; }));
  board.set(kMayEnd, 1);
  CHECK(exit_codes(workers) == "0 137 0 0");
}

// That rank 1 is gone. The socket may close before the process counts as ended.
bool has_noticed(const DaemonProcess& daemon) {
  const std::string log = daemon.log();
  return contains(log, "its process ended without leaving") || contains(log, "closed its connection") || contains(log, "): left");
}

// Rank 1 commits while the server sleeps and ends at once; rank 0 commits after that and looks.
std::string commit_and_end(void (*end)(Worker&)) {
  DaemonProcess daemon({"--expect", "2", "--op", "sum", "--bucket-bytes", "1024"});
  Board board;
  auto workers = start_workers(2, [&](int rank) {
    if (rank == 0) return survive(daemon.name(), rank, board, {11, 0b11, 2}, false);
    Worker worker = attach(daemon.name(), eight_buckets(), rank);
    fill(worker, kNumbers[rank]);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the server spins
    if (worker.commit().status() != Outcome::ok) return 1;
    board.set(kVictimReady, 1);
    end(worker);
    return 0;
  });
  if (!reaches(board, kVictimReady, 1) || !eventually([&] { return has_noticed(daemon); })) return "never noticed";
  board.set(kMayCommit, 1), board.set(kMayEnd, 1);
  return exit_codes(workers);
}

constexpr std::size_t kKilled = 8;  // after one word a rank

// Everybody's sum is 36; without `victim` it is 35 - victim.
int keep_stepping(const std::string& instance, int rank, int victim, Board& board) {
  Verdict verdict;
  Worker worker = attach(instance, eight_buckets(), rank);
  const float without = static_cast<float>(36 - (victim + 1));
  for (long round = 1; round <= 100; ++round) {
    fill(worker, static_cast<float>(rank + 1));
    verdict.expect(step(worker));
    const auto count = worker.round(static_cast<std::uint64_t>(round)).contributor_count;
    verdict.expect(holds(worker, count == 8 ? 36 : without));
    verdict.expect(round > 50 || count == 8);
    board.set(static_cast<std::size_t>(rank), round);
    if (round == 99 && rank == victim) linger();  // it never commits the last round
    if (round == 99) verdict.expect(reaches(board, kKilled, 1));
  }
  verdict.expect(worker.round(100).contributor_count == 7);
  return verdict.code();
}

}  // namespace

TEST_CASE("S7: a worker killed while it writes is left out, the round closes with three, and its memory is freed") {
  DaemonProcess daemon({"--expect", "4", "--op", "sum", "--bucket-bytes", "1024"});
  Board board;
  board.set(kMayCommit, 1);
  auto workers = start_four(daemon.name(), board, kWithoutVictim, false, [](Worker& worker, Board& words) { write_for_ever(worker, words); });
  REQUIRE(reaches(board, kVictimReady, 1));
  CHECK(board.get(kDone) == 0);
  workers[kVictim].kill();
  check_freed_and_end(daemon, workers, board);
}

TEST_CASE("S7: a worker killed after it committed some buckets is left out of all of them, those summed with it included") {
  DaemonProcess daemon({"--expect", "4", "--op", "sum", "--bucket-bytes", "1024"});
  Board board;
  board.set(kMayCommit, 1);
  auto workers = start_four(daemon.name(), board, kWithoutVictim, true, [](Worker& worker, Board& words) { commit_some(worker, words, kBuckets / 2); });
  REQUIRE(reaches(board, kSeen, 1));
  CHECK(board.get(kDone) == 0);
  workers[kVictim].kill();
  check_freed_and_end(daemon, workers, board);
}

TEST_CASE("S7: a worker killed after it committed everything counts, and its memory is freed after the round") {
  DaemonProcess daemon({"--expect", "4", "--op", "sum", "--bucket-bytes", "1024"});
  Board board;
  auto workers = start_four(daemon.name(), board, kEverybody, false, [](Worker& worker, Board& words) { commit_some(worker, words, kBuckets); });
  REQUIRE(reaches(board, kVictimReady, 1));
  workers[kVictim].kill();
  REQUIRE(eventually([&] { return has_noticed(daemon); }));
  board.set(kMayCommit, 1);
  check_freed_and_end(daemon, workers, board);
}

TEST_CASE("S7: a worker killed the moment it has committed everything counts, whether or not the server has looked yet") {
  for (int i = 0; i < 10; ++i) CHECK(commit_and_end([](Worker&) { ::kill(getpid(), SIGKILL); }) == "0 137");
}

TEST_CASE("S7: a worker that leaves the moment it has committed everything counts too") {
  for (int i = 0; i < 10; ++i) CHECK(commit_and_end([](Worker& worker) { worker.leave(); }) == "0 0");
}

TEST_CASE("nccl#863: when one of eight workers is killed, the other seven have their next results") {
  for (const int victim : {0, 4, 7}) {
    CAPTURE(victim);
    DaemonProcess daemon({"--expect", "8", "--op", "sum", "--bucket-bytes", "1024"});
    Board board;
    auto workers = start_workers(8, [&](int rank) { return keep_stepping(daemon.name(), rank, victim, board); });
    REQUIRE(reaches(board, static_cast<std::size_t>(victim), 50));
    workers[static_cast<std::size_t>(victim)].kill();
    board.set(kKilled, 1);
    std::string expected;
    for (int rank = 0; rank < 8; ++rank) expected += std::string(rank == 0 ? "" : " ") + (rank == victim ? "137" : "0");
    CHECK(exit_codes(workers) == expected);
  }
}
