#include "fake_cuda/streams.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/config.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"

namespace gradshm::fake {

std::shared_ptr<Stream> Stream::start(Context& context, Kind kind) {
  auto stream = std::make_shared<Stream>(context, kind);
  std::thread([stream] { stream->work(); }).detach();
  return stream;
}

void Stream::push(Operation operation) {
  const std::lock_guard guard(mutex_);
  if (capturing_) return recorded_.push_back(std::move(operation));
  queue_.push_back(std::move(operation));
  ++issued_;
  changed_.notify_all();
}

void Stream::end() {
  const std::lock_guard guard(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      Operation operation = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      execute(operation);
    }
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

// After an error nothing runs any more, host functions included.
void Stream::execute(Operation& operation) {
  for (const Point& point : operation.after) point.stream->wait_for(point.done);
  pause_at_random();
  if (config().slow_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(config().slow_us));
  try {
    context.check();
    meet_operation(operation.kind);
    operation.run();
  } catch (const Refusal& refusal) {
    context.stick(refusal.code);
  }
}

void Stream::wait_for(std::uint64_t done) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= done; });
}

void Stream::wait_for_all() { wait_for(last().done); }

Point Stream::last() {
  const std::lock_guard guard(mutex_);
  return {shared_from_this(), issued_};
}

bool Stream::idle() {
  const std::lock_guard guard(mutex_);
  return done_ == issued_;
}

void Stream::capture(bool on) {
  const std::lock_guard guard(mutex_);
  if (on) recorded_.clear();
  capturing_ = on;
}

bool Stream::capturing() {
  const std::lock_guard guard(mutex_);
  return capturing_;
}

std::vector<Operation> Stream::recorded() {
  const std::lock_guard guard(mutex_);
  return recorded_;
}

std::shared_ptr<Stream> stream_of(CUstream handle, Context& context) {
  const std::lock_guard guard(context.mutex);
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context.null_stream;
  for (const auto& stream : context.streams)
    if (stream.get() == reinterpret_cast<Stream*>(handle)) return stream;
  throw Refusal{CUDA_ERROR_INVALID_HANDLE};
}

void enqueue(const std::shared_ptr<Stream>& stream, Operation operation) {
  const std::lock_guard guard(stream->context.mutex);
  if (stream->kind == Stream::Kind::null) {
    for (const auto& other : stream->context.streams)
      if (other->kind == Stream::Kind::blocking) operation.after.push_back(other->last());
  } else if (stream->kind == Stream::Kind::blocking) {
    operation.after.push_back(stream->context.null_stream->last());
  }
  stream->push(std::move(operation));
}

void run_now(Context& context, Operation operation) {
  const auto stream = stream_of(nullptr, context);
  enqueue(stream, std::move(operation));
  stream->wait_for_all();
  context.check();
}

void synchronize(Context& context) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard guard(context.mutex);
    all = context.streams;
    all.insert(all.end(), context.retired.begin(), context.retired.end());
    all.push_back(context.null_stream);
  }
  for (const auto& stream : all)
    if (stream) stream->wait_for_all();
}

}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuStreamCreate(CUstream* ret_stream, unsigned int flags) {
  return in_context("cuStreamCreate", [&](Context& context) {
    require(ret_stream != nullptr && (flags == CU_STREAM_DEFAULT || flags == CU_STREAM_NON_BLOCKING));
    auto stream = Stream::start(context, flags == CU_STREAM_DEFAULT ? Stream::Kind::blocking : Stream::Kind::free);
    const std::lock_guard guard(context.mutex);
    context.streams.push_back(stream);
    counts().live_streams.add();
    *ret_stream = reinterpret_cast<CUstream>(stream.get());
  });
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  return in_context("cuStreamDestroy", [&](Context& context) {
    const auto stream = stream_of(handle, context);
    require(stream->kind != Stream::Kind::null, CUDA_ERROR_INVALID_HANDLE);
    {
      const std::lock_guard guard(context.mutex);
      std::erase_if(context.retired, [](const auto& old) { return old->idle(); });
      context.retired.push_back(stream);
      std::erase(context.streams, stream);
    }
    stream->end();
    counts().live_streams.drop();
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  return in_context("cuStreamSynchronize", [&](Context& context) {
    const auto stream = stream_of(handle, context);
    require(!stream->capturing(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream->kind == Stream::Kind::null) enqueue(stream, {"sync", [] {}, {}});  // behind the blocking streams
    stream->wait_for_all();
    context.check();
  });
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return in_context("cuStreamQuery", [&](Context& context) {
    const auto stream = stream_of(handle, context);
    require(!stream->capturing(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    require(stream->idle(), CUDA_ERROR_NOT_READY);
    context.check();
  });
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* ret_status) {
  return in_context("cuStreamIsCapturing", [&](Context& context) {
    require(ret_status != nullptr);
    *ret_status = stream_of(handle, context)->capturing() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  });
}
