// A worker with known values in its slot, led by lines on stdin: "commit", "abstain" and "wait" (each answered by a line with the outcome).
// dump-worker INSTANCE RANK [partial]
#include <gradshm/gradshm.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>

namespace {

using gradshm::DType;
constexpr auto kLong = std::chrono::seconds(120);

gradshm::Layout layout(bool partial) {
  gradshm::Layout all;
  all.add("w", DType::f32, {2, 3}, {.aliases = {"w.tied"}}).add("scalar", DType::f64, {});
  if (partial) return all;
  all.add("columns", DType::f32, {2, 3}, {.column_major = true}).add("half", DType::f16, {4}).add("brain", DType::bf16, {3});
  all.add("none", DType::f32, {0, 4}).add("wild", DType::f32, {4}).add("long.weight", DType::f32, {1000});
  return all;
}

template <class T>
void put(const gradshm::Worker& worker, const char* name, std::initializer_list<T> values) {
  std::copy(values.begin(), values.end(), worker.slot<T>(name).begin());
}

void fill(const gradshm::Worker& worker, bool partial) {
  put<float>(worker, "w", {0.5f, -1, 2, 3, 4, 0.1f});
  put<double>(worker, "scalar", {0.1});
  if (partial) return;
  put<float>(worker, "columns", {1, 2, 3, 4, 5, 6});
  put<std::uint16_t>(worker, "half", {0x3c00, 0xc000, 0x7bff, 0x0001});  // 1, -2, 65504, 2^-24
  put<std::uint16_t>(worker, "brain", {0x3f80, 0xc049, 0x7fc0});         // 1, -3.140625, NaN
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  put<float>(worker, "wild", {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 3});
  const auto values = worker.slot<float>("long.weight");
  std::iota(values.begin(), values.end(), 0.0f);
}

const char* word(gradshm::Outcome outcome) { return outcome == gradshm::Outcome::ok ? "ok" : outcome == gradshm::Outcome::empty ? "empty" : "other"; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 1;
  const bool partial = argc > 3 && std::string_view(argv[3]) == "partial";
  auto worker = gradshm::Worker::attach(argv[1], layout(partial), {.rank = std::stoi(argv[2]), .partial = partial, .wait_for_admission = false});
  fill(worker, partial);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "commit") std::cout << word(worker.commit({.weight = 4}).status()) << std::endl;
    if (line == "abstain") std::cout << word(worker.abstain().status()) << std::endl;
    if (line == "wait") std::cout << word(worker.wait(0, kLong)) << std::endl;
    if (line == "admitted") std::cout << worker.wait_admitted(kLong) << std::endl;
  }
}
