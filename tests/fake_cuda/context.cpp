#include "fake_cuda/context.hpp"

#include "fake_cuda/calls.hpp"
#include "fake_cuda/memory.hpp"
#include "fake_cuda/streams.hpp"

namespace gradshm::fake {
namespace {

thread_local std::vector<Context*> pushed;

std::vector<std::unique_ptr<Context>>& contexts() {
  static auto* const all = [] {
    auto* const made = new std::vector<std::unique_ptr<Context>>;
    for (const int device : config().visible) {
      made->push_back(std::make_unique<Context>());
      made->back()->ordinal = static_cast<int>(made->size()) - 1;
      made->back()->device = device;
    }
    return made;
  }();
  return *all;
}

// Its streams run dry, its memory is gone.
void tear_down(Context& context) {
  synchronize(context);
  std::vector<std::shared_ptr<Stream>> ended;
  {
    const std::lock_guard guard(context.mutex);
    ended.swap(context.streams);
    ended.push_back(std::move(context.null_stream));
    context.retired.clear();
  }
  for (const auto& stream : ended) stream->end();
  forget_memory_of(context);
}

}  // namespace

void Context::stick(CUresult code) {
  int none = CUDA_SUCCESS;
  // order: relaxed, the first one stays; nothing is published with it.
  sticky.compare_exchange_strong(none, code, std::memory_order_relaxed);
}

void Context::check() const {
  // order: relaxed, as above.
  const auto code = static_cast<CUresult>(sticky.load(std::memory_order_relaxed));
  require(code == CUDA_SUCCESS, code);
}

Context& context_of(int ordinal) {
  require(ordinal >= 0 && static_cast<std::size_t>(ordinal) < contexts().size(), CUDA_ERROR_INVALID_DEVICE);
  return *contexts()[static_cast<std::size_t>(ordinal)];
}

Context& context_of(CUcontext handle) {
  for (const auto& context : contexts())
    if (context.get() == reinterpret_cast<Context*>(handle)) return *context;
  throw Refusal{CUDA_ERROR_INVALID_CONTEXT};
}

Context& current_context() {
  require(!pushed.empty(), CUDA_ERROR_INVALID_CONTEXT);
  Context& context = *pushed.back();
  context.check();
  const std::lock_guard guard(context.mutex);
  require(context.retained > 0, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return context;
}

void check_current_if_any() {
  if (!pushed.empty()) pushed.back()->check();
}

void stick_to_current(CUresult code) {
  if (!pushed.empty()) pushed.back()->stick(code);
}

}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* ret_context, CUdevice device) {
  return anywhere("cuDevicePrimaryCtxRetain", [&] {
    require(ret_context != nullptr);
    Context& context = context_of(device);
    context.check();
    const std::lock_guard guard(context.mutex);
    if (context.retained++ == 0) context.null_stream = Stream::start(context, Stream::Kind::null);
    *ret_context = reinterpret_cast<CUcontext>(&context);
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return anywhere("cuDevicePrimaryCtxRelease", [&] {
    Context& context = context_of(device);
    bool last = false;
    {
      const std::lock_guard guard(context.mutex);
      require(context.retained > 0, CUDA_ERROR_INVALID_CONTEXT);
      last = --context.retained == 0;
    }
    if (last) tear_down(context);
  });
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext handle) {
  return anywhere("cuCtxPushCurrent", [&] {
    Context& context = context_of(handle);
    {
      const std::lock_guard guard(context.mutex);
      require(context.retained > 0, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    pushed.push_back(&context);
  });
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* ret_context) {
  return anywhere("cuCtxPopCurrent", [&] {
    require(!pushed.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (ret_context != nullptr) *ret_context = reinterpret_cast<CUcontext>(pushed.back());
    pushed.pop_back();
  });
}

CUresult CUDAAPI cuCtxSynchronize() {
  return in_context("cuCtxSynchronize", [&](Context& context) {
    synchronize(context);
    context.check();
  });
}
