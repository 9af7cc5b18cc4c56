// A program that is its own gradshm server: the server runs in a thread, three more threads and main are the workers.
// Together they fit y = a x + b to noisy points by gradient descent; every worker has points of its own.
//   embedded                  prints: 4 workers, 300 rounds: y = 2.01 x + 1.00
#include <gradshm/server.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <future>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr int kWorkers = 4, kRounds = 300, kPoints = 50;
constexpr double kSlope = 2, kOffset = 1, kRate = 0.3;

struct Line {
  double slope = 0, offset = 0;
};

gradshm::Layout make_layout() {
  gradshm::Layout layout;
  layout.add("slope", gradshm::DType::f64, {}).add("offset", gradshm::DType::f64, {});
  return layout;
}

// Worker `rank` has points of its own part of [-1, 1), so that no worker alone could say where the line is as well as all.
// Returns the gradient of the squared error *summed* over its points.
Line gradient(int rank, const Line& line) {
  Line sum;
  for (int i = 0; i < kPoints; ++i) {
    const double x = -1 + 2.0 * (rank * kPoints + i) / (kWorkers * kPoints);
    const double noise = 0.1 * std::sin(37.0 * i + rank);
    const double error = line.slope * x + line.offset - (kSlope * x + kOffset + noise);
    sum.slope += error * x, sum.offset += error;
  }
  return sum;
}

Line work(const std::string& instance, int rank) {
  auto worker = gradshm::Worker::attach(instance, make_layout(), {.rank = rank});
  const auto slope = worker.slot<double>("slope"), offset = worker.slot<double>("offset");
  Line line;
  for (int round = 0; round < kRounds; ++round) {
    const Line own = gradient(rank, line);
    slope[0] = own.slope, offset[0] = own.offset;
    if (worker.commit({.weight = kPoints}).wait(60s) != gradshm::Outcome::ok) throw std::runtime_error("a round did not close");
    line.slope -= kRate * worker.result<double>("slope")[0];  // the mean over all points of all workers
    line.offset -= kRate * worker.result<double>("offset")[0];
  }
  return line;
}

void run() {
  const std::string name = "embedded-" + std::to_string(getpid());
  const auto server = gradshm::Server::start({.name = name, .expect = kWorkers});
  std::vector<std::future<Line>> others;
  for (int rank = 1; rank < kWorkers; ++rank) others.push_back(std::async(std::launch::async, work, server.name(), rank));
  const Line line = work(server.name(), 0);
  for (std::future<Line>& other : others)
    if (const Line same = other.get(); same.slope != line.slope || same.offset != line.offset)
      throw std::runtime_error("two workers ended with different lines");
  std::printf("%d workers, %d rounds: y = %.2f x + %.2f\n", kWorkers, kRounds, line.slope, line.offset);
  if (std::abs(line.slope - kSlope) > 0.05 || std::abs(line.offset - kOffset) > 0.05) throw std::runtime_error("that is not the line the points were made of");
}  // the server stops here; nothing of it is left

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "embedded: %s\n", error.what());
    return 1;
  }
}
