// Who meets whom: parameters are matched by name, and what does not match is refused in words.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

// The rows of a parameter file in another order; header and total stay.
void write_shuffled(const std::string& from, const std::string& to) {
  std::vector<std::string> lines = lines_of(read_text(from));
  const auto is_row = [](const std::string& line) { return !line.starts_with('#'); };
  const auto rows_end = std::stable_partition(lines.begin() + 1, lines.end(), is_row);
  std::shuffle(lines.begin() + 1, rows_end, std::mt19937(1));
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_text(to, text);
}

std::string described(const gradshm_parameter_t& parameter) {
  std::string text = std::to_string(parameter.id) + " " + parameter.name + " " + gradshm_dtype_name(parameter.dtype) + " (";
  for (std::size_t dim = 0; dim < parameter.ndim; ++dim) text += std::to_string(parameter.shape[dim]) + ",";
  return text + ") " + std::to_string(parameter.offset) + "\n";
}

std::string dump(const Handle& handle) {
  std::string text;
  for (std::size_t index = 0; index < handle.size(); ++index) text += described(handle.parameter(index));
  return text;
}

// `turn` 0 registers first and so fixes the layout.
int dump_in_turn(const std::string& instance, const std::string& tsv, int turn, Board& board, const std::string& to) {
  Verdict verdict;
  verdict.expect(turn == 0 || reaches(board, 0, 1));
  Worker worker = Worker::attach(instance, Layout::from_tsv(tsv), {.rank = turn, .wait_for_admission = false});
  write_text(to, dump(worker));
  board.set(static_cast<std::size_t>(turn), 1);
  verdict.expect(reaches(board, 1, 1));
  for (std::size_t index = 0; index < worker.size(); ++index)
    verdict.expect(worker.parameter(index).id == gradshm_parameter_id(worker.parameter(index).name));
  return verdict.code();
}

std::vector<std::string> names_in(const std::string& tsv) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(read_text(tsv)))
    if (!line.starts_with('#') && !line.starts_with("name\t")) names.push_back(line.substr(0, line.find('\t')));
  return names;
}

// p1 and p2 registered in one order by rank 0 and in the other by rank 1.
int contribute_two(const std::string& instance, int rank, std::initializer_list<std::int64_t> p1, std::initializer_list<std::int64_t> p2) {
  Layout layout;
  if (rank == 0) layout.add("p1", DType::f32, p1).add("p2", DType::f32, p2);
  else layout.add("p2", DType::f32, p2).add("p1", DType::f32, p1);
  Worker worker = attach(instance, layout, rank);
  std::ranges::fill(worker.slot<float>("p1"), rank == 0 ? 1.0f : 2.0f);
  std::ranges::fill(worker.slot<float>("p2"), rank == 0 ? 10.0f : 20.0f);
  Verdict verdict;
  verdict.expect(step(worker));
  verdict.expect(std::ranges::all_of(worker.result<float>("p1"), [](float element) { return element == 3; }));
  verdict.expect(std::ranges::all_of(worker.result<float>("p2"), [](float element) { return element == 30; }));
  return verdict.code();
}

Layout numbered(int parameters) {
  Layout layout;
  for (int i = 0; i < parameters; ++i) layout.add("layer" + std::to_string(i) + ".weight", DType::f32, {4});
  return layout;
}

// "" if it attached.
std::string refusal(const std::string& instance, const Layout& layout, int rank, int& ret_code) {
  try {
    [[maybe_unused]] const Worker worker = attach(instance, layout, rank);
    return {};
  } catch (const Error& error) {
    ret_code = error.code().value();
    return error.what();
  }
}

}  // namespace

TEST_CASE("Z1: two processes that register ResNet-34 in different order see the same ids, names, shapes and offsets") {
  DaemonProcess daemon;
  const std::string directory = std::getenv("GRADSHM_DIR");
  const std::string in_order = data_path("resnet34.tsv"), shuffled = directory + "/shuffled.tsv";
  write_shuffled(in_order, shuffled);
  REQUIRE(names_in(shuffled) != names_in(in_order));
  std::string first = in_order, second = shuffled;
  SUBCASE("the file's order comes first") {}
  SUBCASE("the shuffled order comes first") { std::swap(first, second); }
  Board board;
  auto workers = start_workers(2, [&](int turn) {
    return dump_in_turn(daemon.name(), turn == 0 ? first : second, turn, board, directory + "/dump" + std::to_string(turn));
  });
  CHECK(exit_codes(workers) == "0 0");
  const std::string one = read_text(directory + "/dump0"), other = read_text(directory + "/dump1");
  const bool is_same = one == other;
  CHECK(is_same);
  const std::vector<std::string> lines = lines_of(one), names = names_in(first);
  REQUIRE(lines.size() == 110);
  for (std::size_t index = 0; index < lines.size(); ++index) CHECK(contains(lines[index], " " + names[index] + " f32 ("));
}

TEST_CASE("pytorch#1489: parameters that two workers register in different order are matched by name") {
  DaemonProcess daemon({"--expect", "2", "--op", "sum"});
  auto workers = start_workers(2, [&](int rank) { return contribute_two(daemon.name(), rank, {3, 2}, {4, 3}); });
  CHECK(exit_codes(workers) == "0 0");
}

TEST_CASE("pytorch#1489: they are matched by name where their shapes are equal too") {
  DaemonProcess daemon({"--expect", "2", "--op", "sum"});
  auto workers = start_workers(2, [&](int rank) { return contribute_two(daemon.name(), rank, {3, 2}, {3, 2}); });
  CHECK(exit_codes(workers) == "0 0");
}

TEST_CASE("ChatDoctor#49: manifests of 128 and 0 parameters are an error that names both counts") {
  DaemonProcess daemon;
  Worker first = attach(daemon.name(), numbered(128), 0);
  int code = 0;
  const std::string sentence = refusal(daemon.name(), numbered(0), 1, code);
  CAPTURE(sentence);
  CHECK((code == GRADSHM_LAYOUT_MISMATCH || code == GRADSHM_BAD_LAYOUT));
  CHECK(contains(sentence, "128 parameters"));  // not "128" alone: the instance's name holds a pid
  CHECK((contains(sentence, " 0 ") || contains(sentence, "no parameters")));
  CHECK(step(first));
}

TEST_CASE("ChatDoctor#49: manifests of 128 and 127 parameters are an error that names both counts and the one that is missing") {
  DaemonProcess daemon;
  Worker first = attach(daemon.name(), numbered(128), 0);
  int code = 0;
  const std::string sentence = refusal(daemon.name(), numbered(127), 1, code);
  CAPTURE(sentence);
  CHECK(code == GRADSHM_LAYOUT_MISMATCH);
  CHECK(contains(sentence, "128 parameters there and 127 here"));
  CHECK(contains(sentence, "layer127.weight"));
  CHECK(step(first));
}

TEST_CASE("ChatDoctor#49: one name with 2x3 and 3x2 is an error that names both shapes") {
  DaemonProcess daemon;
  Layout there, here;
  there.add("head.weight", DType::f32, {2, 3}), here.add("head.weight", DType::f32, {3, 2});
  Worker first = attach(daemon.name(), there, 0);
  int code = 0;
  const std::string sentence = refusal(daemon.name(), here, 1, code);
  CAPTURE(sentence);
  CHECK(code == GRADSHM_LAYOUT_MISMATCH);
  CHECK(contains(sentence, "head.weight"));
  CHECK(contains(sentence, "f32[2,3] there"));
  CHECK(contains(sentence, "f32[3,2] here"));
  CHECK(step(first));
}

TEST_CASE("ColossalAI#675: one name as f16 and as f32 is an error that names both dtypes") {
  DaemonProcess daemon;
  Layout there, here;
  there.add("head.weight", DType::f16, {8}), here.add("head.weight", DType::f32, {8});
  Worker first = attach(daemon.name(), there, 0);
  int code = 0;
  const std::string sentence = refusal(daemon.name(), here, 1, code);
  CAPTURE(sentence);
  CHECK(code == GRADSHM_LAYOUT_MISMATCH);
  CHECK(contains(sentence, "f16"));
  CHECK(contains(sentence, "f32"));
  CHECK(step(first));
}
