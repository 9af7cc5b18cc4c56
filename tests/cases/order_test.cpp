// Sums are made in rank order, so their bits do not depend on who came first, on bucket sizes or on threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <numeric>
#include <thread>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

using Permutation = std::array<std::size_t, 3>;
constexpr std::array<float, 3> kValues{1e8f, 1.0f, -1e8f};

std::vector<Permutation> permutations() {
  std::vector<Permutation> all;
  Permutation next{0, 1, 2};
  do all.push_back(next);
  while (std::ranges::next_permutation(next).found);
  return all;
}

Layout several_sizes() {
  Layout layout;
  layout.add("small", DType::f32, {5}).add("middle", DType::f32, {1000}).add("large", DType::f32, {100003});
  return layout;
}

// The pause lets the server see this commit before the next.
bool commit_in_order(std::vector<Worker>& workers, const Permutation& arrival) {
  for (const std::size_t rank : arrival) {
    if (workers[rank].commit().status() != Outcome::ok) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return std::ranges::all_of(workers, [](Worker& worker) { return worker.wait(0, kPatience) == Outcome::ok; });
}

bool has_bits(const Handle& handle, std::uint32_t bits) {
  for (std::size_t index = 0; index < handle.size(); ++index)
    if (!std::ranges::all_of(handle.result<float>(index), [bits](float element) { return std::bit_cast<std::uint32_t>(element) == bits; }))
      return false;
  return true;
}

float sum_in_rank_order(const Permutation& values) {
  volatile float sum = kValues[values[0]];  // volatile: rounded after every step
  sum = sum + kValues[values[1]];
  sum = sum + kValues[values[2]];
  return sum;
}

void check_all_orders(const std::string& bucket_bytes, const std::string& threads) {
  DaemonProcess daemon({"--expect", "3", "--op", "sum", "--bucket-bytes", bucket_bytes, "--reducer-threads", threads});
  std::vector<Worker> workers = attach_all(daemon.name(), several_sizes(), 3);
  for (const Permutation& values : permutations())
    for (const Permutation& arrival : permutations()) {
      for (std::size_t rank = 0; rank < 3; ++rank) fill(workers[rank], kValues[values[rank]]);
      REQUIRE(commit_in_order(workers, arrival));
      CAPTURE(sum_in_rank_order(values));
      CHECK(has_bits(workers[0], std::bit_cast<std::uint32_t>(sum_in_rank_order(values))));
    }
}

}  // namespace

TEST_CASE("pytorch#30509: 1e8, 1 and -1e8 have one bit pattern a rank order, for all arrival orders, bucket sizes and thread counts") {
  CHECK(sum_in_rank_order({0, 1, 2}) != sum_in_rank_order({0, 2, 1}));  // the input tells the orders apart
  for (const char* bucket_bytes : {"64", "4096", "8388608"})
    for (const char* threads : {"1", "2", "5"}) {
      CAPTURE(bucket_bytes);
      CAPTURE(threads);
      check_all_orders(bucket_bytes, threads);
    }
}
