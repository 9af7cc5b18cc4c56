#include "replay.hpp"

#include <fstream>
#include <stdexcept>

namespace policies {
namespace {

[[noreturn]] void contradiction(const Record& record, const std::string& what) {
  throw std::runtime_error("the record of round " + std::to_string(record.round) + " is wrong: " + what);
}

bool read(std::istream& file, Record& record) {
  file >> record.round >> record.members >> record.contributors;
  for (std::size_t policy = 0; policy < kPolicies; ++policy) file >> record.count[policy] >> record.weight[policy];
  return static_cast<bool>(file);
}

// As the server does it: f32, in rank order, one division by the number of samples.
struct Sum {
  explicit Sum(const Shape& shape) : weight(shape.outputs * shape.inputs), bias(shape.outputs) {}
  void add(const Sum& other, bool first) {
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = first ? other.weight[i] : weight[i] + other.weight[i];
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = first ? other.bias[i] : bias[i] + other.bias[i];
  }
  void divide(float samples) {
    for (float& value : weight) value /= samples;
    for (float& value : bias) value /= samples;
  }
  std::vector<float> weight, bias;
};

void replay_policy(std::uint64_t seed, const Record& record, std::size_t policy, State& state) {
  Sum sum(kShapes[policy]), part(kShapes[policy]);
  unsigned count = 0;
  double samples = 0;
  for (int rank = 0; rank < kLearners; ++rank) {
    const std::size_t own = samples_of(seed, rank, record.round, policy);
    if ((record.contributors >> rank & 1) == 0 || own == 0) continue;
    compute_gradient(seed, rank, record.round, policy, state, {part.weight, part.bias});
    sum.add(part, count == 0);
    ++count, samples += static_cast<double>(own);
  }
  if (count != record.count[policy] || samples != record.weight[policy])
    contradiction(record, std::to_string(record.count[policy]) + " learners with " + std::to_string(record.weight[policy]) + " samples for policy " +
                              kShapes[policy].group + " instead of " + std::to_string(count) + " with " + std::to_string(samples));
  if (samples != 1) sum.divide(static_cast<float>(samples));
  step(state, policy, {sum.weight, sum.bias});
}

}  // namespace

std::vector<Record> read_records(const std::string& path) {
  std::ifstream file(path);
  std::vector<Record> records;
  for (Record record; read(file, record);) {
    if (record.round != records.size() + 1) contradiction(record, "round " + std::to_string(records.size() + 1) + " should stand there");
    if ((record.contributors & ~record.members) != 0 || record.contributors == 0) contradiction(record, "contributors that are no members");
    records.push_back(record);
  }
  if (!file.eof() || records.empty()) throw std::runtime_error(path + " is no list of records");
  return records;
}

State replay(std::uint64_t seed, const std::vector<Record>& records) {
  State state;
  for (const Record& record : records) {
    for (std::size_t policy = 0; policy < kPolicies; ++policy) replay_policy(seed, record, policy, state);
    state.round = record.round;
  }
  return state;
}

}  // namespace policies
