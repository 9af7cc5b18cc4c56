// The main path: everybody writes, commits, waits and reads the exact result.
#include <array>

#include "server/numbers.hpp"
#include "server/workers.hpp"

namespace gradshm::test {
namespace {

constexpr std::array<double, 4> kWeights{1, 2, 1, 4};
constexpr std::array<DType, 4> kTypes{DType::f32, DType::f64, DType::f16, DType::bf16};
constexpr std::int64_t kNumel = 37;  // no multiple of any vector

double gradient(std::size_t rank, std::uint64_t round, std::size_t index) {
  return static_cast<double>((rank + 1) * (index % 3 + 1) + round % 4);
}

double expected(int op, std::uint64_t round, std::size_t index) {
  double sum = 0, weights = 0;
  for (std::size_t rank = 0; rank < kWeights.size(); ++rank) {
    sum += gradient(rank, round, index) * (op == GRADSHM_WEIGHTED_MEAN ? kWeights[rank] : 1);
    weights += kWeights[rank];
  }
  return op == GRADSHM_SUM ? sum : sum / weights;
}

Layout all_types() {
  Layout layout;
  for (const DType dtype : kTypes)
    for (const char* name : {"a", "b"}) layout.add(std::string(name) + gradshm_dtype_name(static_cast<int>(dtype)), dtype, {kNumel});
  return layout;
}

void write_round(const Worker& worker, std::size_t rank, std::uint64_t round) {
  for (std::size_t p = 0; p < worker.size(); ++p)
    for (std::size_t i = 0; i < kNumel; ++i)
      store_element(static_cast<DType>(worker.parameter(p).dtype), worker.slot<std::byte>(p).data(), i, gradient(rank, round, i + p));
}

std::size_t wrong_elements(const Worker& worker, int op, std::uint64_t round) {
  std::size_t wrong = 0;
  for (std::size_t p = 0; p < worker.size(); ++p)
    for (std::size_t i = 0; i < kNumel; ++i) {
      const double got = load_element(static_cast<DType>(worker.parameter(p).dtype), worker.result<std::byte>(p).data(), i);
      wrong += got == expected(op, round, i + p) ? 0 : 1;
    }
  return wrong;
}

void take_part(const std::string& name, int op, std::size_t rank, std::uint64_t rounds) {
  Worker worker = Worker::attach(name, all_types(), {.rank = static_cast<int>(rank)});
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    write_round(worker, rank, round);
    const Round committed = worker.commit({.weight = kWeights[rank]});
    CHECK(committed.number() == round);
    CHECK(committed.wait(kLong) == Outcome::ok);
    CHECK(wrong_elements(worker, op, round) == 0);
  }
}

void run_op(int op) {
  auto options = expecting(4, 100);
  options.op = op;
  ServerThread server(options);
  run_threads(4, [&](std::size_t rank) { take_part(server.name(), op, rank, 8); });
}

}  // namespace

TEST_CASE("one worker alone gets back what it wrote, round after round") {
  ServerThread server;
  Worker worker = Worker::attach(server.name(), floats(3));
  CHECK(worker.rank() == 0);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    fill_all(worker, static_cast<float>(round));
    const Round committed = worker.commit();
    CHECK(committed.number() == round);
    CHECK(committed.wait(kLong) == Outcome::ok);
    for (std::size_t i = 0; i < 3; ++i) CHECK(all_are(worker, i, static_cast<float>(round)));
    CHECK(worker.info().closed_round == round);
    CHECK(worker.info().committed_round == round);
  }
  CHECK(worker.info().bytes_copied == 0);
}

TEST_CASE("sum is exact for every dtype and several workers") { run_op(GRADSHM_SUM); }
TEST_CASE("mean divides the sum by the sum of weights, exactly for every dtype") { run_op(GRADSHM_MEAN); }
TEST_CASE("weighted-mean multiplies each worker's gradients by its weight first, exactly for every dtype") { run_op(GRADSHM_WEIGHTED_MEAN); }

TEST_CASE("mean without weights is the plain mean") {
  Team team(floats(1), 2);
  fill_all(team[0], 1), fill_all(team[1], 4);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(commit(team[1]) == Outcome::ok);
  CHECK(wait_for(team[1]) == Outcome::ok);
  CHECK(all_are(team[1], 0, 2.5f));
}

TEST_CASE("many rounds of threads that commit their buckets in different orders sum in rank order to the last bit") {
  constexpr std::size_t kRanks = 4, kParameters = 5, kRounds = 200;
  const auto value = [](std::size_t rank, std::uint64_t round, std::size_t p) {
    return static_cast<float>(rank + 1) * 0.1f + static_cast<float>(round) * 0.37f * static_cast<float>(p + 1);
  };
  ServerThread server(summing(kRanks, kOneEach));
  run_threads(kRanks, [&](std::size_t rank) {
    Worker worker = Worker::attach(server.name(), floats(kParameters, 33), {.rank = static_cast<int>(rank)});
    std::size_t wrong = 0;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (std::size_t p = 0; p < kParameters; ++p) fill(worker, p, value(rank, round, p));
      for (std::size_t i = 0; i < kParameters; ++i)
        wrong += worker.commit_bucket((i * 3 + rank + round) % kParameters).status() == Outcome::ok ? 0 : 1;
      wrong += wait_for(worker, round) == Outcome::ok ? 0 : 1;
      for (std::size_t p = 0; p < kParameters; ++p) {
        float sum = value(0, round, p);
        for (std::size_t other = 1; other < kRanks; ++other) sum += value(other, round, p);
        wrong += all_are(worker, p, sum) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("one parameter larger than a bucket is a bucket of its own and sums exactly") {
  Team team(floats(3, 100'003), summing(2, 4096));
  CHECK(team[0].info().buckets == 3);
  for (int round = 0; round < 3; ++round) check_exact_round({&team[0], &team[1]});
}

TEST_CASE("sums are made in rank order and not in the order of arrival") {
  Team team(floats(1), summing(3));
  const std::array<float, 3> values{1e8f, -1e8f, 1.f};  // left to right 1; in any other order 0
  for (const auto order : {std::array<std::size_t, 3>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    for (std::size_t rank = 0; rank < 3; ++rank) fill_all(team[rank], values[rank]);
    for (const std::size_t rank : order) {
      CHECK(commit(team[rank]) == Outcome::ok);
      nap();
    }
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(wait_for(team[rank]) == Outcome::ok);
    CHECK(all_are(team[0], 0, 1));
  }
}

}  // namespace gradshm::test
