// A worker for containers_test.py, led by lines on stdin: "round" writes, commits, waits and checks every element of the sum;
// "end" leaves. Each is answered by a line; where something fails, "error STATUS SENTENCE" is the last.
// container-worker INSTANCE RANK ELEMENTS
#include <gradshm/gradshm.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>

namespace {

constexpr std::chrono::seconds kPatience{120};  // ends a hang
constexpr int kMaxWorkers = 256;

float gradient(int rank, std::uint64_t round) { return static_cast<float>(round % 64 * 8 + static_cast<std::uint64_t>(rank)); }

// Of those that the round's record names.
float sum_of(const gradshm_round_t& record) {
  float sum = 0;
  for (int rank = 0; rank < kMaxWorkers; ++rank)
    if ((record.contributors[rank / 64] >> (rank % 64) & 1) != 0) sum += gradient(rank, record.round);
  return sum;
}

void fill(gradshm::Worker& worker, std::uint64_t round) {
  const auto slot = worker.slot<float>("w");
  std::fill(slot.begin(), slot.end(), gradient(worker.rank(), round));
}

std::string round(gradshm::Worker& worker) {
  worker.wait_admitted(kPatience);
  fill(worker, worker.info().closed_round + 1);  // it cannot close without this member
  const gradshm::Round round = worker.commit();
  const gradshm::Outcome outcome = round.wait(kPatience);
  if (outcome != gradshm::Outcome::ok) return std::string("error ") + gradshm::to_string(outcome) + " " + gradshm_last_error();
  const gradshm_round_t record = worker.round(round.number());
  const auto result = worker.result<float>("w");
  const float wanted = sum_of(record);
  const bool right = std::all_of(result.begin(), result.end(), [&](float value) { return value == wanted; });
  return (right ? "round " : "wrong ") + std::to_string(round.number()) + " of " + std::to_string(record.contributor_count);
}

int serve(const std::string& instance, int rank, std::int64_t elements) {
  gradshm::Layout layout;
  layout.add("w", gradshm::DType::f32, {elements});
  auto worker = gradshm::Worker::attach(instance, layout, {.rank = rank, .wait_for_admission = false, .timeout = kPatience});
  std::cout << "attached" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "round") std::cout << round(worker) << std::endl;
    if (line == "end") return 0;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 1;
  try {
    return serve(argv[1], std::stoi(argv[2]), std::stoll(argv[3]));
  } catch (const gradshm::Error& error) {
    std::cout << "error " << gradshm_strerror(error.code().value()) << ": " << error.what() << std::endl;
    return 2;
  }
}
