// What several cases need: workers in children, verdicts without doctest, and a look at /proc.
#pragma once

#include <support/harness.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gradshm::test {

// Ends a hang; no speed limit.
constexpr std::chrono::seconds kPatience{60};

// What a child found, where doctest must not be used. The first expectation that is not met is named on stderr.
class Verdict {
 public:
  void expect(bool met, int line = __builtin_LINE());
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_ = 0;
};

[[nodiscard]] std::string data_path(const std::string& file);
[[nodiscard]] std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);
[[nodiscard]] bool contains(const std::string& text, const std::string& part);
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);
// The runner counts these lines.
void skip(const std::string& reason);

// One f32 parameter "w".
[[nodiscard]] Layout one_vector(std::int64_t elements);
[[nodiscard]] Worker attach(const std::string& instance, const Layout& layout, int rank);
// `count` workers of this one process, ranks 0 and up; the server expects as many.
[[nodiscard]] std::vector<Worker> attach_all(const std::string& instance, const Layout& layout, int count);
// f32 parameters only: every slot element becomes `value`; every result element is `value`.
void fill(Worker& worker, float value);
[[nodiscard]] bool holds(const Handle& handle, float value);
// Commits everything and waits for the round.
[[nodiscard]] bool step(Worker& worker, const CommitOptions& options = {});
// Commits all of them, then waits for all of them.
[[nodiscard]] bool step_all(std::vector<Worker>& workers, const CommitOptions& options = {});

[[nodiscard]] std::vector<Child> start_workers(int count, const std::function<int(int rank)>& body);
// Waits for all of them: "0 0 137".
[[nodiscard]] std::string exit_codes(std::vector<Child>& children);
// False after kPatience.
[[nodiscard]] bool reaches(const Board& board, std::size_t index, long at_least);

// A mapping of a process, from /proc/<pid>/maps.
struct Mapped {
  std::uintptr_t begin = 0, end = 0;
  std::uint64_t inode = 0;
  std::string access;  // "rw-s"
};
// Those whose file is called so ("gradshm-slot").
[[nodiscard]] std::vector<Mapped> mappings(pid_t pid, const std::string& file);
[[nodiscard]] std::size_t descriptors(pid_t pid);

}  // namespace gradshm::test
