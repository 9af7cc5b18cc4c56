// Copies and fills.
#include <cstring>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/config.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/guard.hpp"
#include "fake_cuda/memory.hpp"
#include "fake_cuda/streams.hpp"

namespace gradshm::fake {
namespace {

constexpr std::size_t kPiece = 64 << 10;

// In pieces with pauses, so that a process can die in the middle and a reader that comes too early sees half of it.
template <class Piece>
void in_pieces(std::size_t bytes, Piece&& piece) {
  run_guarded([&] {
    for (std::size_t done = 0; done < bytes; done += kPiece) {
      if (done != 0) pause_at_random();
      piece(done, std::min(kPiece, bytes - done));
    }
  });
}

void copy(void* to, const void* from, std::size_t bytes) {
  in_pieces(bytes, [&](std::size_t at, std::size_t size) { std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, size); });
}

Operation to_device(Context& context, CUdeviceptr to, const void* from, std::size_t bytes) {
  check_device_operand(to, bytes);
  check_host_operand(from, bytes);
  return {"copy",
          [&context, to, from, bytes] {
            copy(resolve(context, to, bytes, Access::write), from, bytes);
            counts().host_to_device_bytes.add(bytes);
          },
          {}};
}

Operation to_host(Context& context, void* to, CUdeviceptr from, std::size_t bytes) {
  check_device_operand(from, bytes);
  check_host_operand(to, bytes);
  return {"copy",
          [&context, to, from, bytes] {
            copy(to, resolve(context, from, bytes, Access::read), bytes);
            counts().device_to_host_bytes.add(bytes);
          },
          {}};
}

// Legacy memory of another device of this process is copied by way of its own context.
Context& context_that_reaches(Context& context, CUdeviceptr pointer) {
  Memory& memory = Memory::get();
  const std::lock_guard guard(memory.mutex);
  const auto found = memory.find(pointer);
  return found != memory.ranges.end() && found->second.origin == Origin::allocated ? *found->second.context : context;
}

Operation on_device(Context& context, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  check_device_operand(to, bytes);
  check_device_operand(from, bytes);
  return {"copy",
          [&context, to, from, bytes] {
            void* const target = resolve(context_that_reaches(context, to), to, bytes, Access::write);
            copy(target, resolve(context_that_reaches(context, from), from, bytes, Access::read), bytes);
            counts().device_to_device_bytes.add(bytes);
          },
          {}};
}

Operation set(Context& context, CUdeviceptr to, unsigned char value, std::size_t bytes) {
  check_device_operand(to, bytes);
  return {"set",
          [&context, to, value, bytes] {
            char* const memory = static_cast<char*>(resolve(context, to, bytes, Access::write));
            in_pieces(bytes, [&](std::size_t at, std::size_t size) { std::memset(memory + at, value, size); });
            counts().set_bytes.add(bytes);
          },
          {}};
}

}  // namespace
}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return in_context("cuMemcpyHtoD", [&](Context& context) { run_now(context, to_device(context, to, from, bytes)); });
}

CUresult CUDAAPI cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return in_context("cuMemcpyDtoH", [&](Context& context) { run_now(context, to_host(context, to, from, bytes)); });
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return in_context("cuMemcpyHtoDAsync", [&](Context& context) { enqueue(stream_of(stream, context), to_device(context, to, from, bytes)); });
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return in_context("cuMemcpyDtoHAsync", [&](Context& context) { enqueue(stream_of(stream, context), to_host(context, to, from, bytes)); });
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return in_context("cuMemcpyDtoDAsync", [&](Context& context) { enqueue(stream_of(stream, context), on_device(context, to, from, bytes)); });
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  return in_context("cuMemsetD8Async", [&](Context& context) { enqueue(stream_of(stream, context), set(context, to, value, bytes)); });
}
