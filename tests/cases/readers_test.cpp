// A reader that is no member sees one round at a time, however fast they close.
#include <doctest/doctest.h>

#include <algorithm>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

constexpr std::int64_t kElements = 20000;
constexpr long kRounds = 3000, kSnapshots = 1000, kMaxRounds = 1 << 24;  // f32 counts exactly up to 2^24
enum Word : std::size_t { kRoundsDone, kSnapshotsTaken, kLastRound };

// Rank 0 says which round is the last before it commits the one before, so that both end alike.
bool is_over(const Board& board, long round) { return board.get(kLastRound) != 0 && round > board.get(kLastRound); }
bool may_end(const Board& board, long round) {
  return round >= kRounds && board.get(kSnapshotsTaken) >= kSnapshots && board.get(kLastRound) == 0;
}

int fill_with_round_numbers(const std::string& instance, int rank, Board& board) {
  Verdict verdict;
  Worker worker = attach(instance, one_vector(kElements), rank);
  for (long round = 1; !is_over(board, round) && round < kMaxRounds && verdict.code() == 0; ++round) {
    fill(worker, static_cast<float>(round));
    if (rank == 0 && may_end(board, round)) board.set(kLastRound, round + 1);
    verdict.expect(step(worker));
    verdict.expect(holds(worker, static_cast<float>(round)));
    if (rank == 0) board.set(kRoundsDone, round);
  }
  return verdict.code();
}

struct Reading {
  std::vector<float> data = std::vector<float>(static_cast<std::size_t>(kElements));
  std::uint64_t last_round = 0, rounds_seen = 0;
};

// A snapshot holds one number, the one of its round, which never goes back.
void take_snapshot(Verdict& verdict, Observer& observer, Reading& reading) {
  const auto info = observer.read(0, reading.data.data(), reading.data.size() * sizeof(float), kPatience);
  const auto number = static_cast<float>(info.round);
  verdict.expect(std::ranges::all_of(reading.data, [number](float element) { return element == number; }));
  verdict.expect(info.present == 1 && info.count == 2 && info.weight_sum == 2);
  verdict.expect(info.round >= reading.last_round);
  if (info.round != reading.last_round) ++reading.rounds_seen;
  reading.last_round = info.round;
}

int scan(const std::string& instance, Board& board) {
  Verdict verdict;
  if (!reaches(board, kRoundsDone, 1)) return 2;
  Observer observer = Observer::observe(instance);
  Reading reading;
  long taken = 0;
  while (board.get(kLastRound) == 0 && verdict.code() == 0) {
    take_snapshot(verdict, observer, reading);
    board.set(kSnapshotsTaken, ++taken);
  }
  verdict.expect(reading.rounds_seen >= 10);
  verdict.expect(observer.info().bytes_copied >= static_cast<std::uint64_t>(taken) * reading.data.size() * sizeof(float));
  return verdict.code();
}

}  // namespace

TEST_CASE("pytorch#8149: a reader that scans the result while rounds close never sees two rounds in one snapshot") {
  DaemonProcess daemon({"--expect", "2"});
  Board board;
  std::vector<Child> children = start_workers(3, [&](int rank) {
    return rank == 2 ? scan(daemon.name(), board) : fill_with_round_numbers(daemon.name(), rank, board);
  });
  CHECK(exit_codes(children) == "0 0 0");
  CHECK(board.get(kRoundsDone) >= kRounds);
  CHECK(board.get(kSnapshotsTaken) >= kSnapshots);
}
