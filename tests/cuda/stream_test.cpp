#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "cuda/support.hpp"

using namespace gradshm::test;

namespace {

// Registered, and as the device sees it.
struct Words {
  alignas(4096) std::array<std::uint64_t, 512> host{};
  CUdeviceptr device = 0;
  explicit Words(const Gpu& gpu) {
    must(gpu.cu.host_register(host.data(), sizeof host, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    must(gpu.cu.host_device_pointer(&device, host.data(), 0));
  }
  // order: acquire, pairs with the stream's write.
  [[nodiscard]] std::uint64_t get() { return std::atomic_ref(host[0]).load(std::memory_order_acquire); }
};

constexpr const char* kJitter = "GRADSHM_FAKE_JITTER_US";

}  // namespace

TEST_CASE("operations of a stream run in their order, whatever the pauses: who sees the word sees the bytes") {
  CHECK(run_on_fake({{kJitter, "300"}, {"GRADSHM_FAKE_SEED", "7"}}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream stream = gpu.stream(), reader = gpu.stream();
          const CUdeviceptr memory = gpu.allocate();
          Words words(gpu);
          std::string bytes(100'000, '\0');
          for (unsigned char round = 1; round <= 10; ++round) {
            must(gpu.cu.set_bytes_async(memory, round, bytes.size(), stream));
            must(gpu.cu.stream_write(stream, words.device, round, CU_STREAM_WRITE_VALUE_DEFAULT));
            verdict.expect(eventually([&] { return words.get() == round; }));
            must(gpu.cu.copy_to_host_async(bytes.data(), memory, bytes.size(), reader));
            must(gpu.cu.stream_synchronize(reader));
            verdict.expect(bytes == std::string(bytes.size(), static_cast<char>(round)));
          }
        }) == 0);
}

TEST_CASE("a stream that is not done says so, and two free streams do not wait for each other") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream held = gpu.stream(), free_one = gpu.stream();
          Board gate;
          must(gpu.cu.launch_host(held, [](void* board) { static_cast<Board*>(board)->wait_for(0, 1); }, &gate));
          Words words(gpu);
          must(gpu.cu.stream_write(held, words.device, 1, 0));
          verdict.expect(gpu.cu.stream_query(held) == CUDA_ERROR_NOT_READY);
          must(gpu.cu.stream_write(free_one, words.device + 8, 1, 0));
          must(gpu.cu.stream_synchronize(free_one));
          verdict.expect(words.host[1] == 1 && words.get() == 0);
          gate.set(0, 1);
          must(gpu.cu.stream_synchronize(held));
          verdict.expect(words.get() == 1 && gpu.cu.stream_query(held) == CUDA_SUCCESS);
          verdict.expect(gradshm::fake::counters().host_functions == 1 && gradshm::fake::counters().value_writes == 2);
        }) == 0);
}

TEST_CASE("the null stream waits for blocking streams, and they for it; free streams take no part") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream blocking = gpu.stream(CU_STREAM_DEFAULT), other = gpu.stream(CU_STREAM_DEFAULT), free_one = gpu.stream();
          Board gate;
          Words words(gpu);
          must(gpu.cu.launch_host(blocking, [](void* board) { static_cast<Board*>(board)->wait_for(0, 1); }, &gate));
          must(gpu.cu.stream_write(nullptr, words.device, 1, 0));
          must(gpu.cu.stream_write(other, words.device + 8, 1, 0));
          must(gpu.cu.stream_write(free_one, words.device + 16, 1, 0));
          must(gpu.cu.stream_synchronize(free_one));
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for what must not happen
          verdict.expect(words.get() == 0 && gpu.cu.stream_query(other) == CUDA_ERROR_NOT_READY);
          gate.set(0, 1);
          must(gpu.cu.ctx_synchronize());
          verdict.expect(words.host[0] == 1 && words.host[1] == 1 && words.host[2] == 1);
        }) == 0);
}

TEST_CASE("an asynchronous copy reads its source when it runs") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream stream = gpu.stream();
          const CUdeviceptr memory = gpu.allocate();
          Board gate;
          std::string bytes(64, 'a');
          must(gpu.cu.launch_host(stream, [](void* board) { static_cast<Board*>(board)->wait_for(0, 1); }, &gate));
          must(gpu.cu.copy_to_device_async(memory, bytes.data(), bytes.size(), stream));
          bytes.assign(64, 'b');
          gate.set(0, 1);
          must(gpu.cu.stream_synchronize(stream));
          verdict.expect(gpu.holds(memory, 'b', 64));
        }) == 0);
}

TEST_CASE("what is queued when the process is killed never happens") {
  Board board;
  Child child = start_on_fake({}, [&] {
    const Gpu gpu;
    const CUstream stream = gpu.stream();
    must(gpu.cu.host_register(board.memory, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr words = 0;
    must(gpu.cu.host_device_pointer(&words, board.memory, 0));
    must(gpu.cu.stream_write(stream, words, 1, 0));
    must(gpu.cu.launch_host(stream, [](void* shared) { static_cast<Board*>(shared)->wait_for(9, 1); }, &board));  // never
    must(gpu.cu.stream_write(stream, words + 8, 1, 0));
    board.wait_for(9, 1);
    return 0;
  });
  REQUIRE(reaches(board, 0, 1));
  child.kill();
  CHECK(child.wait() == 128 + SIGKILL);
  board.set(9, 1);
  CHECK(board.get(1) == 0);
}

TEST_CASE("a capturing stream refuses what cannot be captured, keeps the rest for the replay, and says that it captures") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream stream = gpu.stream(), other = gpu.stream();
          Words words(gpu);
          const auto capture = GRADSHM_FAKE_CONTROL(gradshm_fake_capture);
          CUstreamCaptureStatus status{};
          must(static_cast<CUresult>(capture(stream, 1)));
          must(gpu.cu.stream_is_capturing(stream, &status));
          verdict.expect(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
          verdict.expect(gpu.cu.stream_write(stream, words.device, 1, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
          verdict.expect(gpu.cu.stream_synchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
          std::uint64_t value = 5;
          void* parameters[] = {&words.device, &value};
          must(gpu.cu.launch(gpu.kernel("gradshm_publish"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
          must(static_cast<CUresult>(capture(stream, 0)));
          must(gpu.cu.stream_synchronize(stream));
          verdict.expect(words.get() == 0);
          value = 6;  // copied at the launch
          must(static_cast<CUresult>(GRADSHM_FAKE_CONTROL(gradshm_fake_replay)(stream, other)));
          must(gpu.cu.stream_synchronize(other));
          verdict.expect(words.get() == 5);
        }) == 0);
}

TEST_CASE("a stream that is destroyed still does its work; its handle is no handle any more") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_SLOW_US", "5000"}}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream stream = gpu.stream();
          Words words(gpu);
          must(gpu.cu.stream_write(stream, words.device, 3, 0));
          must(gpu.cu.stream_destroy(stream));
          verdict.expect(gpu.cu.stream_query(stream) == CUDA_ERROR_INVALID_HANDLE);
          must(gpu.cu.ctx_synchronize());
          verdict.expect(words.get() == 3);
        }) == 0);
}

TEST_CASE("freeing memory waits for the streams that may use it") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_SLOW_US", "5000"}}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream stream = gpu.stream();
          const CUdeviceptr memory = gpu.allocate();
          must(gpu.cu.set_bytes_async(memory, 1, 4096, stream));
          must(gpu.cu.mem_free(memory));
          Mapped2M mapped(gpu);
          must(gpu.cu.set_bytes_async(mapped.address, 1, 4096, stream));
          mapped.unmap();
          must(gpu.cu.ctx_synchronize());
          verdict.expect(gradshm::fake::counters().uses_of_closed == 0 && gradshm::fake::counters().set_bytes == 2 * 4096);
        }) == 0);
}
