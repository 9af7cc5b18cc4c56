// What the kernel does in the model: sleeping on a word, and the doorbell.
#include <algorithm>

#include "interleave/memory.hpp"

namespace gradshm::test {

// Operations on one object have an order, which is explored; those of one kind leave no trace of theirs.
void Memory::begin_call(KernelObject& object, Kind kind) {
  begin_event();
  Thread& self = me();
  const unsigned thread = explorer().current();
  const auto others = [&object, kind] { return std::count_if(object.calls.begin(), object.calls.end(), [=](const SystemCall& call) { return call.kind != kind; }); };
  unsigned node = 0;
  while (explorer().choose(1, node) == Explorer::kWait) explorer().block([=, seen = others()] { return others() > seen; }, false);
  for (const SystemCall& call : object.calls)
    if (call.kind != kind && call.seen.thread != thread && self.cause[call.seen.thread] < call.seen.clock) explorer().allow_wait(call.seen.node);
  object.calls.push_back({kind, {thread, node, self.clock}});
  join(self.cause, object.cause[kind == Kind::wait_or_ring ? 1 : 0]);
  join(object.cause[kind == Kind::wait_or_ring ? 0 : 1], self.cause);
}

// The kernel compares under its lock: it knows what those knew who have woken before, and nothing else. A sleeper learns nothing by it.
void Memory::futex_wait(const std::uint32_t& address, std::uint32_t seen) {
  if (!active()) misuse("a sleep outside a thread");
  const OwnMemory own;
  std::uint64_t shift = 0;
  const unsigned number = word_at(&address, sizeof address, shift);
  begin_call(futex_, Kind::wait_or_ring);
  Sleeper sleeper;
  futex_.sleepers.push_back(&sleeper);
  const unsigned chosen = choose_store(number, false, number < futex_.known.words ? futex_.known.oldest[number] : 0, true);
  read_store(number, chosen, Order::relaxed);
  if (words_[number].stores[chosen].value == seen && !sleeper.woken) explorer().block([&sleeper] { return sleeper.woken; }, true);
  if (sleeper.woken) join(me().cause, sleeper.cause);
  std::erase(futex_.sleepers, &sleeper);
  if (tracing_) trace_.push_back("thread " + std::to_string(explorer().current()) + "  futex_wait returns");
}

void Memory::futex_wake(const std::uint32_t&) {
  if (!active()) return;
  const OwnMemory own;
  begin_call(futex_, Kind::wake_or_take);
  futex_.known.join(me().known);
  for (Sleeper* sleeper : futex_.sleepers)
    if (!sleeper->woken) sleeper->woken = true, sleeper->cause = me().cause;
  if (tracing_) trace_.push_back("thread " + std::to_string(explorer().current()) + "  futex_wake");
}

void Memory::ring() {
  if (!active()) return;
  const OwnMemory own;
  begin_call(bell_, Kind::wait_or_ring);
  bell_.rung = true;
  if (tracing_) trace_.push_back("thread " + std::to_string(explorer().current()) + "  rings");
}

void Memory::sleep_until_rung() {
  const OwnMemory own;
  if (!bell_.rung) explorer().block([this] { return bell_.rung; }, true);
  begin_call(bell_, Kind::wake_or_take);
  bell_.rung = false;
  if (tracing_) trace_.push_back("thread " + std::to_string(explorer().current()) + "  was rung for");
}

}  // namespace gradshm::test
