// Runs the threads of one test again and again as fibers, until every choice that the memory model offers has been made in every way.
//
// A thread runs until it has to wait. What another schedule could change is only what a load reads, and in which order operations on
// the futex and the doorbell come; both are choices. A load may read any store that is there already and that the model allows, or
// wait for one that another thread has yet to make: this last choice is tried only where some execution has shown such a store that
// does not depend on the load. So each outcome (who reads from whom) is run once, however many schedules lead to it.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradshm::test {

struct Limits {
  unsigned deviations = 1000;              // per execution: loads that do not read the newest store, and operations that wait for another thread
  std::uint64_t executions = 100'000'000;  // then it gives up, and `exhausted` is false
};

struct Outcome {
  std::uint64_t executions = 0;  // complete ones
  std::uint64_t void_ones = 0;   // given up: a load waited for a store that never came
  bool exhausted = false;        // every choice within the limit of deviations was made
  bool bounded = false;          // that limit has cut something off
  std::string error;             // of the first execution that went wrong; empty = none
};

class Explorer {
 public:
  using Body = std::function<void()>;
  struct Program {
    std::function<void()> set_up;    // before the threads: accesses are those of one thread, known to all
    std::vector<Body> threads;
    std::function<std::string()> finished;  // after a complete execution: what is wrong with it
    std::function<void()> reset;            // after any execution
  };
  static constexpr int kWait = -1;

  Outcome explore(const Program& program, const Limits& limits);

  // For the memory model, on the running fiber.
  [[nodiscard]] bool in_thread() const noexcept { return current_ >= 0; }
  [[nodiscard]] unsigned current() const noexcept { return static_cast<unsigned>(current_); }
  // Which of `options` (0 = the usual one), or kWait. ret_node: for allow_wait.
  int choose(unsigned options, unsigned& ret_node);
  void allow_wait(unsigned node) { trail_[node].wait_allowed = true; }
  // Lets others run until `ready`. A sleep that never ends is a deadlock; a choice to wait that never ends was no execution at all.
  void block(std::function<bool()> ready, bool is_sleep);
  [[noreturn]] void fail(const std::string& text);

 private:
  struct Node {
    unsigned options = 1, chosen = 0;
    bool wait = false, wait_allowed = false;
  };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    bool done = false, blocked = false, sleeps = false;
    std::function<bool()> ready;
  };
  enum class End { complete, gave_up, failed };

  End run_once(const Program& program);
  int next_runnable() const;
  void start(unsigned thread);
  static void enter(unsigned high, unsigned low);
  bool backtrack(const Limits& limits, Outcome& outcome);
  void describe_deadlock();

  std::vector<Node> trail_;
  std::size_t depth_ = 0;
  std::vector<Fiber> fibers_;
  const Program* program_ = nullptr;
  ucontext_t scheduler_;
  int current_ = -1;
  std::string error_;
};

Explorer& explorer();
[[noreturn]] void misuse(const char* text);  // of the harness: ends the program

// What the code under test allocates while this is on is forgotten at the next forget_allocations: fibers that are given up run no
// destructors.
bool keep_allocations_apart(bool on) noexcept;  // returns what it was
void forget_allocations() noexcept;

// While it lives: the harness's own memory, within code under test.
class OwnMemory {
 public:
  OwnMemory() : before_(keep_allocations_apart(false)) {}
  ~OwnMemory() { keep_allocations_apart(before_); }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

 private:
  bool before_;
};

}  // namespace gradshm::test
