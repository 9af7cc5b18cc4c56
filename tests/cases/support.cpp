#include "support.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gradshm::test {

void Verdict::expect(bool met, int line) {
  if (met || code_ != 0) return;
  code_ = 1;
  std::fprintf(stderr, "child %d: the expectation in line %d is not met\n", getpid(), line);
}

std::string data_path(const std::string& file) { return std::string(GRADSHM_TEST_DATA) + "/params/" + file; }

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void skip(const std::string& reason) { std::fprintf(stderr, "SKIPPED: %s\n", reason.c_str()); }

Layout one_vector(std::int64_t elements) {
  Layout layout;
  layout.add("w", DType::f32, {elements});
  return layout;
}

Worker attach(const std::string& instance, const Layout& layout, int rank) {
  return Worker::attach(instance, layout, {.rank = rank, .timeout = kPatience});
}

std::vector<Worker> attach_all(const std::string& instance, const Layout& layout, int count) {
  std::vector<Worker> workers;
  for (int rank = 0; rank < count; ++rank)
    workers.push_back(Worker::attach(instance, layout, {.rank = rank, .wait_for_admission = false, .timeout = kPatience}));
  for (Worker& worker : workers) worker.wait_admitted(kPatience);
  return workers;
}

void fill(Worker& worker, float value) {
  for (std::size_t index = 0; index < worker.size(); ++index) std::ranges::fill(worker.slot<float>(index), value);
}

bool holds(const Handle& handle, float value) {
  for (std::size_t index = 0; index < handle.size(); ++index)
    if (!std::ranges::all_of(handle.result<float>(index), [value](float element) { return element == value; })) return false;
  return true;
}

bool step(Worker& worker, const CommitOptions& options) { return worker.commit(options).wait(kPatience) == Outcome::ok; }

bool step_all(std::vector<Worker>& workers, const CommitOptions& options) {
  std::vector<Round> rounds;
  for (Worker& worker : workers) rounds.push_back(worker.commit(options));
  return std::ranges::all_of(rounds, [](const Round& round) { return round.wait(kPatience) == Outcome::ok; });
}

std::vector<Child> start_workers(int count, const std::function<int(int)>& body) {
  std::vector<Child> children;
  children.reserve(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) children.emplace_back([&body, rank] { return body(rank); });
  return children;
}

std::string exit_codes(std::vector<Child>& children) {
  std::string codes;
  for (Child& child : children) codes += (codes.empty() ? "" : " ") + std::to_string(child.wait());
  return codes;
}

bool reaches(const Board& board, std::size_t index, long at_least) {
  return eventually([&] { return board.get(index) >= at_least; });
}

std::vector<Mapped> mappings(pid_t pid, const std::string& file) {
  std::vector<Mapped> found;
  for (const std::string& line : lines_of(read_text("/proc/" + std::to_string(pid) + "/maps"))) {
    if (!contains(line, "/memfd:" + file + " ")) continue;
    Mapped mapped;
    std::istringstream fields(line);
    char dash = 0;
    std::string offset, device;
    fields >> std::hex >> mapped.begin >> dash >> mapped.end >> mapped.access >> offset >> device >> std::dec >> mapped.inode;
    found.push_back(mapped);
  }
  return found;
}

std::size_t descriptors(pid_t pid) {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace gradshm::test
