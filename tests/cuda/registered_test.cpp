#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "cuda/support.hpp"

using namespace gradshm::test;

namespace {

constexpr unsigned kPortable = CU_MEMHOSTREGISTER_PORTABLE, kMapped = CU_MEMHOSTREGISTER_DEVICEMAP;

struct alignas(4096) Page {
  std::array<std::uint64_t, 512> words{};
};

CUdeviceptr device_pointer(const Gpu& gpu, void* host) {
  CUdeviceptr pointer = 0;
  must(gpu.cu.host_device_pointer(&pointer, host, 0));
  return pointer;
}

}  // namespace

TEST_CASE("registered memory has a device pointer that is not the host's, and is registered once") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          Page page;
          must(gpu.cu.host_register(&page, sizeof page, kPortable | kMapped));
          verdict.expect(gpu.cu.host_register(&page.words[8], 64, kMapped) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
          const CUdeviceptr pointer = device_pointer(gpu, &page);
          verdict.expect(pointer != reinterpret_cast<CUdeviceptr>(&page));
          verdict.expect(device_pointer(gpu, &page.words[3]) == pointer + 24);
          must(gpu.cu.host_unregister(&page));
          verdict.expect(gpu.cu.host_unregister(&page) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
          CUdeviceptr never = 0;
          verdict.expect(gpu.cu.host_device_pointer(&never, &page, 0) == CUDA_ERROR_INVALID_VALUE && never == 0);
          must(gpu.cu.host_register(&page, sizeof page, 0));
          verdict.expect(gpu.cu.host_device_pointer(&never, &page, 0) == CUDA_ERROR_INVALID_VALUE);  // not mapped
        }) == 0);
}

TEST_CASE("a write value needs an aligned device pointer to memory that is there") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          Page page;
          must(gpu.cu.host_register(&page, sizeof page, kPortable | kMapped));
          const CUdeviceptr pointer = device_pointer(gpu, &page);
          verdict.expect(gpu.cu.stream_write(nullptr, pointer + 4, 1, 0) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.stream_write(nullptr, pointer + sizeof page, 1, 0) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.stream_write(nullptr, reinterpret_cast<CUdeviceptr>(&page), 1, 0) == CUDA_ERROR_INVALID_VALUE);  // the host's pointer
          must(gpu.cu.stream_write(nullptr, pointer + 8, 77, 0));
          const CUdeviceptr memory = gpu.allocate();
          must(gpu.cu.stream_write(nullptr, memory, 0x0101010101010101, 0));
          must(gpu.cu.stream_synchronize(nullptr));
          verdict.expect(page.words[1] == 77 && gpu.holds(memory, 1, 8));
        }) == 0);
}

TEST_CASE("host memory that is unregistered under a queued write is an illegal address, and is not written") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUstream stream = gpu.stream();
          Page page;
          Board gate;
          must(gpu.cu.host_register(&page, sizeof page, kMapped));
          must(gpu.cu.launch_host(stream, [](void* board) { static_cast<Board*>(board)->wait_for(0, 1); }, &gate));
          must(gpu.cu.stream_write(stream, device_pointer(gpu, &page), 1, 0));
          must(gpu.cu.host_unregister(&page));
          gate.set(0, 1);
          verdict.expect(gpu.cu.stream_synchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
          verdict.expect(page.words[0] == 0 && gradshm::fake::counters().uses_of_closed == 1);
        }) == 0);
}

TEST_CASE("memory that is registered read-only is not written") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          Page page;
          must(gpu.cu.host_register(&page, sizeof page, kMapped | CU_MEMHOSTREGISTER_READ_ONLY));
          must(gpu.cu.stream_write(nullptr, device_pointer(gpu, &page), 1, 0));
          verdict.expect(gpu.cu.ctx_synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS && page.words[0] == 0);
          verdict.expect(gradshm::fake::counters().forbidden_accesses == 1);
        }) == 0);
}

TEST_CASE("memory that is not portable is another context's only") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_DEVICES", "2"}}, [](Verdict& verdict) {
          Page own, shared;
          const Gpu first(0);
          must(first.cu.host_register(&own, sizeof own, kMapped));
          must(first.cu.host_register(&shared, sizeof shared, kMapped | kPortable));
          const Gpu second(1);
          CUdeviceptr never = 0;
          verdict.expect(second.cu.host_device_pointer(&never, &own, 0) == CUDA_ERROR_INVALID_VALUE);
          must(second.cu.stream_write(nullptr, device_pointer(second, &shared), 9, 0));
          must(second.cu.ctx_synchronize());
          verdict.expect(shared.words[0] == 9);
        }) == 0);
}

TEST_CASE("copies refuse host memory where device memory belongs, and the other way about") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUdeviceptr memory = gpu.allocate();
          std::array<char, 64> host{};
          verdict.expect(gpu.cu.copy_to_device(reinterpret_cast<CUdeviceptr>(host.data()), host.data(), 8) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.copy_to_device(memory, reinterpret_cast<void*>(memory), 8) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.copy_to_host(reinterpret_cast<void*>(memory), memory, 8) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.copy_to_host(host.data(), memory + Gpu::kChunk - 4, 8) == CUDA_ERROR_INVALID_VALUE);
        }) == 0);
}

TEST_CASE("kernels get their parameters as they were at the launch, and reach device and registered memory") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_SLOW_US", "2000"}}, [](Verdict& verdict) {
          const Gpu gpu;
          Page page;
          must(gpu.cu.host_register(&page, sizeof page, kMapped));
          CUdeviceptr memory = gpu.allocate(), differing = device_pointer(gpu, &page);
          std::uint64_t count = 1000;
          std::uint64_t nonce = 42;
          void* parameters[] = {&memory, &count, &nonce, &differing};
          const CUfunction check = gpu.kernel("gradshm_check");
          must(gpu.cu.launch(gpu.kernel("gradshm_fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
          must(gpu.cu.launch(check, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
          nonce = 43, count = 0;
          must(gpu.cu.ctx_synchronize());
          verdict.expect(page.words[0] == 0 && gradshm::fake::counters().launches == 2);
          count = 1000;
          must(gpu.cu.launch(check, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
          must(gpu.cu.ctx_synchronize());
          verdict.expect(page.words[0] == 1000);
        }) == 0);
}

TEST_CASE("a kernel that follows a pointer of the host, or one to nowhere, fails on its stream") {
  for (const CUdeviceptr pointer : {CUdeviceptr{0x1000}, CUdeviceptr{1} << 60}) {
    CHECK(run_on_fake({}, [pointer](Verdict& verdict) {
            const Gpu gpu;
            CUdeviceptr given = pointer;
            std::uint64_t value = 1;
            void* parameters[] = {&given, &value};
            must(gpu.cu.launch(gpu.kernel("gradshm_fake_poke"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
            verdict.expect(gpu.cu.ctx_synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS && gradshm::fake::counters().faults == 1);
          }) == 0);
  }
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          Page page;
          CUdeviceptr given = reinterpret_cast<CUdeviceptr>(&page);
          std::uint64_t value = 1;
          void* parameters[] = {&given, &value};
          must(gpu.cu.launch(gpu.kernel("gradshm_publish"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
          verdict.expect(gpu.cu.ctx_synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS && page.words[0] == 0);
        }) == 0);
}

TEST_CASE("modules take fat binaries, know their kernels, and launches of impossible shape are refused") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const Driver& cu = gpu.cu;
          CUmodule module = nullptr;
          CUfunction publish = nullptr;
          int blocks = 0;
          verdict.expect(cu.module_load(&module, "\x7f" "ELF") == CUDA_ERROR_INVALID_IMAGE);
          must(cu.module_load(&module, "\x50\xED\x55\xBA"));
          verdict.expect(cu.module_function(&publish, module, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
          must(cu.module_function(&publish, module, "gradshm_publish"));
          must(cu.occupancy(&blocks, publish, 512, 0));
          verdict.expect(blocks == 4);
          CUdeviceptr memory = gpu.allocate();
          std::uint64_t value = 1;
          void* parameters[] = {&memory, &value};
          verdict.expect(cu.launch(publish, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(cu.launch(publish, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(cu.launch(publish, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
          must(cu.module_unload(module));
          verdict.expect(cu.launch(publish, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_HANDLE);
        }) == 0);
}
