#include <doctest/doctest.h>

#include <utility>

#include "cuda/support.hpp"

using namespace gradshm::test;

namespace {

int attribute(const Gpu& gpu, CUdevice_attribute which) {
  int value = -1;
  must(gpu.cu.device_attribute(&value, which, gpu.device));
  return value;
}

// The last digits of the UUIDs of all visible devices.
std::string visible() {
  const Driver& cu = gradshm::core::cuda::driver();
  int count = 0;
  must(cu.device_count(&count));
  std::string digits;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUuuid uuid{};
    must(cu.device_uuid(&uuid, ordinal));
    digits += static_cast<char>('0' + uuid.bytes[15]);
  }
  return digits;
}

bool sees(const char* wanted, const std::string& expected) {
  return run_on_fake({{"GRADSHM_FAKE_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", wanted}}, [&](Verdict& verdict) { verdict.expect(visible() == expected); }) == 0;
}

}  // namespace

TEST_CASE("CUDA_VISIBLE_DEVICES picks and orders by index and UUID, and ends at a device that is not there") {
  CHECK(sees("2,0", "20"));
  CHECK(sees("GPU-fa4ec0da-0000-4000-8000-000000000003,1", "31"));
  CHECK(sees("1,9,2", "1"));
  CHECK(sees("0,GPU-fa4e,2", "0"));  // fits four
}

TEST_CASE("one device under two ordinals is one memory") {
  const FakeSession session;
  const Channel channel;
  Board board;
  Child owner = start_on_fake(session.with({{"GRADSHM_FAKE_DEVICES", "2"}}), [&] {
    const Gpu gpu(1);
    Mapped2M memory(gpu);
    gpu.fill(memory.address, 0x77);
    channel.send(memory.exported());
    board.wait_for(0, 1);
    return 0;
  });
  CHECK(run_on_fake(session.with({{"GRADSHM_FAKE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}}), [&](Verdict& verdict) {
          const Gpu gpu(0);
          Mapped2M memory(gpu, channel.receive(), CU_MEM_ACCESS_FLAGS_PROT_READ);
          verdict.expect(gpu.holds(memory.address, 0x77) && gpu.free_bytes() == (1u << 30) - Gpu::kChunk);
          board.set(0, 1);
        }) == 0);
  CHECK(owner.wait() == 0);
}

TEST_CASE("a device that a process does not see is not imported") {
  const Channel channel;
  Child owner = start_on_fake({{"GRADSHM_FAKE_DEVICES", "2"}}, [&] {
    const Gpu gpu(1);
    channel.send(Mapped2M(gpu).exported());
    return 0;
  });
  CHECK(run_on_fake({{"GRADSHM_FAKE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "0"}}, [&](Verdict& verdict) {
          const Gpu gpu;
          const UniqueFd sent = channel.receive();
          CUmemGenericAllocationHandle handle = 0;
          const CUresult code = gpu.cu.mem_import(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(sent.get())), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
          verdict.expect(code == CUDA_ERROR_INVALID_DEVICE);
        }) == 0);
  CHECK(owner.wait() == 0);
}

TEST_CASE("device memory runs out, for all processes of a session together") {
  const FakeSession session;
  Board board;
  const Settings small = session.with({{"GRADSHM_FAKE_MEMORY", "6M"}});
  Child other = start_on_fake(small, [&] {
    const Gpu gpu;
    static_cast<void>(gpu.allocate(2 * Gpu::kChunk));
    board.set(0, 1);
    board.wait_for(1, 1);
    return 0;
  });
  REQUIRE(reaches(board, 0, 1));
  CHECK(run_on_fake(small, [&](Verdict& verdict) {
          const Gpu gpu;
          CUdeviceptr memory = 0;
          verdict.expect(gpu.cu.mem_alloc(&memory, Gpu::kChunk + 1) == CUDA_ERROR_OUT_OF_MEMORY);
          must(gpu.cu.mem_alloc(&memory, Gpu::kChunk));
          const CUmemAllocationProp asked = on_device(0);
          CUmemGenericAllocationHandle handle = 0;
          verdict.expect(gpu.cu.mem_create(&handle, Gpu::kChunk, &asked, 0) == CUDA_ERROR_OUT_OF_MEMORY);
          must(gpu.cu.mem_free(memory));
          must(gpu.cu.mem_create(&handle, Gpu::kChunk, &asked, 0));
        }) == 0);
  board.set(1, 1);
  CHECK(other.wait() == 0);
}

TEST_CASE("errors come at the call that was asked for, and at no other") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_ERRORS", "cuMemAlloc:2:2,cuMemFree:*:999"}}, [](Verdict& verdict) {
          const Gpu gpu;
          CUdeviceptr memory = 0;
          must(gpu.cu.mem_alloc(&memory, 16));
          verdict.expect(gpu.cu.mem_alloc(&memory, 16) == CUDA_ERROR_OUT_OF_MEMORY);
          must(gpu.cu.mem_alloc(&memory, 16));
          verdict.expect(gpu.cu.mem_free(memory) == CUDA_ERROR_UNKNOWN && gpu.cu.mem_free(memory) == CUDA_ERROR_UNKNOWN);
          verdict.expect(gradshm::fake::counters().live_allocations == 2);
        }) == 0);
}

TEST_CASE("an error of a kernel sticks to its context until the process ends; another device goes on") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_ERRORS", "kernel:2:700"}, {"GRADSHM_FAKE_DEVICES", "2"}}, [](Verdict& verdict) {
          {
            const Gpu gpu;
            CUdeviceptr word = gpu.allocate();
            std::uint64_t value = 1;
            void* parameters[] = {&word, &value};
            const CUfunction publish = gpu.kernel("gradshm_publish");
            for (int launch = 0; launch < 3; ++launch) static_cast<void>(gpu.cu.launch(publish, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
            verdict.expect(gpu.cu.ctx_synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
            verdict.expect(gpu.cu.mem_free(word) == CUDA_ERROR_ILLEGAL_ADDRESS && gpu.cu.ctx_synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
            verdict.expect(gradshm::fake::counters().launches == 1);
          }
          const Gpu healthy(1);
          verdict.expect(healthy.holds(healthy.allocate(), 0, 16));
          CUcontext context = nullptr;
          verdict.expect(healthy.cu.primary_ctx_retain(&context, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
        }) == 0);
}

TEST_CASE("what a device cannot do is said by its attributes, or only by its calls") {
  const auto answers = [](const char* without, int expected) {
    return run_on_fake({{"GRADSHM_FAKE_WITHOUT", without}}, [expected](Verdict& verdict) {
      const Gpu gpu;
      verdict.expect(attribute(gpu, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == expected);
      verdict.expect(attribute(gpu, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == expected);
      verdict.expect(attribute(gpu, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) == expected);
      const CUmemAllocationProp asked = on_device(0);
      CUmemGenericAllocationHandle handle = 0;
      CUipcMemHandle name{};
      std::uint64_t word = 0;
      verdict.expect(gpu.cu.mem_create(&handle, Gpu::kChunk, &asked, 0) == CUDA_ERROR_NOT_SUPPORTED);
      verdict.expect(gpu.cu.ipc_get(&name, gpu.allocate()) == CUDA_ERROR_NOT_SUPPORTED);
      verdict.expect(gpu.cu.stream_write(nullptr, gpu.allocate(), 1, 0) == CUDA_ERROR_NOT_SUPPORTED);
      verdict.expect(gpu.cu.host_register(&word, sizeof word, 0) == CUDA_ERROR_NOT_SUPPORTED);
    });
  };
  CHECK(answers("vmm,ipc,memops,host-register", 0) == 0);
  CHECK(answers("!vmm,!ipc,!memops,!host-register", 1) == 0);
}

TEST_CASE("peer access follows the matrix, and rights for a device that has none are refused") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_DEVICES", "3"}, {"GRADSHM_FAKE_PEERS", "0-1"}}, [](Verdict& verdict) {
          const Gpu gpu;
          int yes = -1;
          must(gpu.cu.device_can_access_peer(&yes, 0, 1));
          verdict.expect(yes == 1);
          must(gpu.cu.device_can_access_peer(&yes, 0, 2));
          verdict.expect(yes == 0);
          must(gpu.cu.device_can_access_peer(&yes, 0, 0));
          verdict.expect(yes == 0);
          Mapped2M memory(gpu);
          CUmemAccessDesc access = rights_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
          must(gpu.cu.mem_set_access(memory.address, Gpu::kChunk, &access, 1));
          access.location.id = 2;
          verdict.expect(gpu.cu.mem_set_access(memory.address, Gpu::kChunk, &access, 1) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
          gpu.fill(memory.address, 0x12);
          const Gpu peer(1);
          verdict.expect(peer.holds(memory.address, 0x12));
          must(peer.cu.set_bytes_async(memory.address, 1, 1, nullptr));
          verdict.expect(peer.cu.stream_synchronize(nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
        }) == 0);
}

TEST_CASE("calls want cuInit in their own process, a current context, and no host function around them") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Driver& cu = gradshm::core::cuda::driver();
          CUdeviceptr memory = 0;
          verdict.expect(cu.mem_alloc(&memory, 16) == CUDA_ERROR_INVALID_CONTEXT);
          {
            const Gpu gpu;
            CUresult inside = CUDA_SUCCESS;
            std::pair<const Driver*, CUresult*> both{&cu, &inside};
            must(cu.launch_host(nullptr, [](void* given) {
              const auto& [table, code] = *static_cast<std::pair<const Driver*, CUresult*>*>(given);
              *code = table->ctx_synchronize();
            }, &both));
            must(cu.ctx_synchronize());
            verdict.expect(inside == CUDA_ERROR_NOT_PERMITTED);
          }
          verdict.expect(cu.mem_alloc(&memory, 16) == CUDA_ERROR_INVALID_CONTEXT);
        }) == 0);
}

TEST_CASE("a forked child of a process that uses the driver has none") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Driver& cu = gradshm::core::cuda::driver();
          verdict.expect(Child([&] {
                           int count = 0;
                           return cu.init(0) == CUDA_ERROR_NOT_INITIALIZED && cu.device_count(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
                         }).wait() == 0);
        }) == 0);
}

TEST_CASE("a setting that cannot be read ends the process with a sentence") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_ERRORS", "cuMemAlloc:0:2"}}, [](Verdict&) { Gpu(); }) == 125);
  CHECK(run_on_fake({{"GRADSHM_FAKE_DEVICES", "9"}}, [](Verdict&) { Gpu(); }) == 125);
}
