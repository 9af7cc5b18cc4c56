#include "interleave/explorer.hpp"

#include <cstdio>
#include <cstdlib>

namespace gradshm::test {
namespace {
constexpr std::size_t kStackBytes = 256 << 10;
}  // namespace

Explorer& explorer() {
  static Explorer instance;
  return instance;
}

void misuse(const char* text) {
  std::fprintf(stderr, "interleave: %s\n", text);
  std::abort();
}

void Explorer::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Explorer*>(static_cast<std::uintptr_t>(high) << 32 | low);
  Fiber& fiber = self->fibers_[self->current()];
  self->program_->threads[self->current()]();
  fiber.done = true;
  while (true) swapcontext(&fiber.context, &self->scheduler_);
}

void Explorer::start(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  fiber.done = fiber.blocked = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get(), fiber.context.uc_stack.ss_size = kStackBytes, fiber.context.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Explorer::enter), 2, static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

int Explorer::next_runnable() const {
  for (std::size_t i = 0; i < fibers_.size(); ++i)
    if (!fibers_[i].done && (!fibers_[i].blocked || fibers_[i].ready())) return static_cast<int>(i);
  return -1;
}

Explorer::End Explorer::run_once(const Program& program) {
  depth_ = 0;
  for (unsigned i = 0; i < fibers_.size(); ++i) start(i);
  while ((current_ = next_runnable()) >= 0) {
    Fiber& fiber = fibers_[current()];
    fiber.blocked = false;
    keep_allocations_apart(true);
    swapcontext(&scheduler_, &fiber.context);
    keep_allocations_apart(false);
    if (!error_.empty()) return current_ = -1, End::failed;
  }
  bool all_done = true, chose_to_wait = false;
  for (const Fiber& fiber : fibers_) all_done &= fiber.done, chose_to_wait |= !fiber.done && !fiber.sleeps;
  if (chose_to_wait) return End::gave_up;
  if (!all_done) describe_deadlock();
  else if (program.finished) error_ = program.finished();
  return error_.empty() ? End::complete : End::failed;
}

void Explorer::describe_deadlock() {
  error_ = "sleeps for ever: thread";
  for (std::size_t i = 0; i < fibers_.size(); ++i)
    if (!fibers_[i].done) error_ += " " + std::to_string(i);
}

bool Explorer::backtrack(const Limits& limits, Outcome& outcome) {
  unsigned deviations = 0;
  for (const Node& node : trail_) deviations += node.wait || node.chosen > 0 ? 1 : 0;
  while (!trail_.empty()) {
    Node& node = trail_.back();
    if (node.wait || node.chosen > 0) --deviations;
    const bool more = !node.wait && (node.chosen + 1 < node.options || node.wait_allowed);
    if (more && deviations < limits.deviations) {
      if (node.chosen + 1 < node.options) ++node.chosen;
      else node.wait = true;
      return true;
    }
    outcome.bounded |= more;
    trail_.pop_back();
  }
  return false;
}

Outcome Explorer::explore(const Program& program, const Limits& limits) {
  Outcome outcome;
  program_ = &program;
  trail_.clear(), error_.clear();
  fibers_.clear(), fibers_.resize(program.threads.size());
  while (outcome.executions + outcome.void_ones < limits.executions) {
    keep_allocations_apart(true);
    if (program.set_up) program.set_up();
    keep_allocations_apart(false);
    const End end = run_once(program);
    if (program.reset) program.reset();
    forget_allocations();
    if (end == End::failed) {
      outcome.error = error_;
      return outcome;
    }
    ++(end == End::complete ? outcome.executions : outcome.void_ones);
    if (!backtrack(limits, outcome)) {
      outcome.exhausted = true;
      return outcome;
    }
  }
  return outcome;
}

int Explorer::choose(unsigned options, unsigned& ret_node) {
  const OwnMemory own;
  if (depth_ == trail_.size()) trail_.push_back({options, 0, false, false});
  ret_node = static_cast<unsigned>(depth_);
  const Node& node = trail_[depth_++];
  if (node.options != options) misuse("the code under test does not do the same again");
  return node.wait ? kWait : static_cast<int>(node.chosen);
}

void Explorer::block(std::function<bool()> ready, bool is_sleep) {
  Fiber& fiber = fibers_[current()];
  fiber.ready = std::move(ready), fiber.blocked = true, fiber.sleeps = is_sleep;
  swapcontext(&fiber.context, &scheduler_);
  keep_allocations_apart(false);  // the memory model has called
}

void Explorer::fail(const std::string& text) {
  {
    const OwnMemory own;
    error_ = std::string(text.data(), text.size());
  }
  while (true) swapcontext(&fibers_[current()].context, &scheduler_);
}

}  // namespace gradshm::test
