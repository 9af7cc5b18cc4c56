// A stream: a queue and the thread that works it off.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace gradshm::fake {

struct Context;
class Stream;

struct Point {  // reached when so many operations of the stream are done
  std::shared_ptr<Stream> stream;
  std::uint64_t done = 0;
};

struct Operation {
  const char* kind = nullptr;  // what GRADSHM_FAKE_ERRORS calls it
  std::function<void()> run;   // throws Refusal
  std::vector<Point> after;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind { null, blocking, free };  // free: CU_STREAM_NON_BLOCKING, no order with the null stream
  [[nodiscard]] static std::shared_ptr<Stream> start(Context& context, Kind kind);
  Stream(Context& owner, Kind its_kind) : context(owner), kind(its_kind) {}
  void push(Operation operation);
  void end();  // what is queued still runs
  void wait_for(std::uint64_t done);
  void wait_for_all();
  [[nodiscard]] Point last();
  [[nodiscard]] bool idle();

  // Recording: captured operations wait for replay().
  void capture(bool on);
  [[nodiscard]] bool capturing();
  [[nodiscard]] std::vector<Operation> recorded();

  Context& context;
  const Kind kind;

 private:
  void work();
  void execute(Operation& operation);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  std::vector<Operation> recorded_;
  std::uint64_t issued_ = 0, done_ = 0;
  bool capturing_ = false, ending_ = false;
};

// NULL and CU_STREAM_LEGACY are the context's null stream; CU_STREAM_PER_THREAD is not there. Throws Refusal(invalid handle).
[[nodiscard]] std::shared_ptr<Stream> stream_of(CUstream handle, Context& context);
// Queues, in the order that CUDA keeps between the null stream and blocking streams.
void enqueue(const std::shared_ptr<Stream>& stream, Operation operation);
// Queues on the null stream and waits; throws what went wrong.
void run_now(Context& context, Operation operation);
void synchronize(Context& context);

}  // namespace gradshm::fake
