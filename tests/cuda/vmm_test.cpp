#include <doctest/doctest.h>
#include <sys/mman.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "cuda/support.hpp"

using namespace gradshm::test;

namespace {

constexpr CUmemAccess_flags kRead = CU_MEM_ACCESS_FLAGS_PROT_READ, kWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
constexpr std::size_t k2M = Gpu::kChunk;

}  // namespace

TEST_CASE("memory that one process creates is seen by another that gets its descriptor over a socket") {
  const FakeSession session;
  const Channel channel;
  Board board;
  Child owner = start_on_fake(session.with(), [&] {
    Verdict verdict;
    const Gpu gpu;
    Mapped2M memory(gpu);
    gpu.fill(memory.address, 0x11);
    channel.send(memory.exported());
    board.wait_for(0, 1);
    verdict.expect(gpu.holds(memory.address, 0x22));
    memory.unmap();
    verdict.expect(gradshm::fake::counters().live_mappings == 0 && gradshm::fake::counters().live_handles == 0);
    return verdict.code();
  });
  CHECK(run_on_fake(session.with(), [&](Verdict& verdict) {
          const Gpu gpu;
          Mapped2M memory(gpu, channel.receive(), kWrite);
          verdict.expect(gpu.holds(memory.address, 0x11));
          gpu.fill(memory.address, 0x22);
          board.set(0, 1);
          memory.unmap();
        }) == 0);
  CHECK(owner.wait() == 0);
}

TEST_CASE("memory lives on in its importer after the exporter was killed, and is free again after the importer too") {
  const FakeSession session;
  const Channel channel;
  Board board;
  Child owner = start_on_fake(session.with(), [&] {
    const Gpu gpu;
    Mapped2M memory(gpu);
    gpu.fill(memory.address, 0x33);
    channel.send(memory.exported());
    board.wait_for(9, 1);  // never
    return 0;
  });
  Child importer = start_on_fake(session.with(), [&] {
    Verdict verdict;
    const Gpu gpu;
    Mapped2M memory(gpu, channel.receive(), kRead);
    board.set(0, 1);
    board.wait_for(1, 1);
    verdict.expect(gpu.holds(memory.address, 0x33));
    verdict.expect(gradshm::fake::counters().uses_of_dead == 0);
    board.set(2, verdict.code() + 1);
    board.wait_for(9, 1);  // never
    return 0;
  });
  board.wait_for(0, 1);
  owner.kill();
  owner.wait();
  board.set(1, 1);
  REQUIRE(reaches(board, 2, 1));
  CHECK(board.get(2) == 1);
  CHECK(run_on_fake(session.with(), [](Verdict& verdict) { verdict.expect(Gpu().free_bytes() == (1u << 30) - k2M); }) == 0);
  importer.kill();
  importer.wait();
  CHECK(run_on_fake(session.with(), [](Verdict& verdict) { verdict.expect(Gpu().free_bytes() == 1u << 30); }) == 0);
}

TEST_CASE("a process that is killed in the middle of a copy leaves half of it") {
  const Channel channel;
  Child writer = start_on_fake({{"GRADSHM_FAKE_JITTER_US", "400000"}}, [&] {
    const Gpu gpu;
    Mapped2M memory(gpu);
    channel.send(memory.exported());
    gpu.fill(memory.address, 0x88);  // takes seconds
    return 0;
  });
  CHECK(run_on_fake({}, [&](Verdict& verdict) {
          const Gpu gpu;
          Mapped2M memory(gpu, channel.receive(), kRead);
          verdict.expect(eventually([&] { return gpu.holds(memory.address, 0x88, 1); }));
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for a copy without pauses to end
          writer.kill();
          verdict.expect(gpu.holds(memory.address + k2M - 1, 0, 1));
        }) == 0);
  CHECK(writer.wait() == 128 + SIGKILL);
}

TEST_CASE("sixteen processes write into one allocation, each its own part, with pauses everywhere") {
  constexpr int kWorkers = 16;
  constexpr std::size_t kPart = k2M / kWorkers;
  const FakeSession session;
  const Settings settings = session.with({{"GRADSHM_FAKE_JITTER_US", "500"}});
  const std::vector<Channel> channels(kWorkers);
  std::vector<Child> workers;
  for (int rank = 0; rank < kWorkers; ++rank)
    workers.push_back(start_on_fake(settings, [&, rank] {
      const Gpu gpu;
      Mapped2M memory(gpu, channels[rank].receive(), kWrite);
      gpu.fill(memory.address + rank * kPart, static_cast<unsigned char>(rank + 1), kPart);
      memory.unmap();
      return 0;
    }));
  Child owner = start_on_fake(settings, [&] {
    const Gpu gpu;
    Mapped2M memory(gpu);
    for (const Channel& channel : channels) channel.send(memory.exported());
    // The bytes themselves say when all are done.
    Verdict verdict;
    for (int rank = 0; rank < kWorkers; ++rank)
      verdict.expect(eventually([&] { return gpu.holds(memory.address + rank * kPart, static_cast<unsigned char>(rank + 1), kPart); }));
    memory.unmap();
    return verdict.code();
  });
  CHECK(owner.wait() == 0);
  CHECK(exit_codes(workers) == "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
  CHECK(run_on_fake(session.with(), [](Verdict& verdict) { verdict.expect(Gpu().free_bytes() == 1u << 30); }) == 0);
}

TEST_CASE("an importer with read rights reads; its writes fail on the stream and stick, whether copies or kernels") {
  for (const bool by_kernel : {false, true}) {
    CAPTURE(by_kernel);
    CHECK(run_on_fake({}, [&](Verdict& verdict) {
            const Gpu gpu;
            Mapped2M writable(gpu);
            gpu.fill(writable.address, 0x44);
            Mapped2M readable(gpu, writable.exported(), kRead);
            verdict.expect(gpu.holds(readable.address, 0x44));
            void* parameters[] = {&readable.address};
            const CUresult queued = by_kernel ? gpu.cu.launch(gpu.kernel("gradshm_fake_poke"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr)
                                              : gpu.cu.set_bytes_async(readable.address, 0x55, 16, nullptr);
            verdict.expect(queued == CUDA_SUCCESS);
            verdict.expect(gpu.cu.stream_synchronize(nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
            CUdeviceptr never = 0;
            verdict.expect(gpu.cu.mem_alloc(&never, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
            verdict.expect(gpu.cu.mem_unmap(writable.address, k2M) == CUDA_ERROR_ILLEGAL_ADDRESS);
            const gradshm_fake_counters_t seen = gradshm::fake::counters();
            verdict.expect(by_kernel ? seen.faults == 1 : seen.forbidden_accesses == 1);
            verdict.expect(*reinterpret_cast<const unsigned char*>(writable.address) == 0x44);
          }) == 0);
  }
}

TEST_CASE("a mapping without rights is out of reach") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          Mapped2M memory(gpu, CU_MEM_ACCESS_FLAGS_PROT_NONE);
          char byte = 0;
          verdict.expect(gpu.cu.copy_to_host(&byte, memory.address, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
        }) == 0);
}

TEST_CASE("sizes, alignments, types and foreign descriptors are checked") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const Driver& cu = gpu.cu;
          CUmemAllocationProp asked = on_device(0);
          CUmemGenericAllocationHandle handle = 0;
          CUdeviceptr address = 0;
          std::size_t granularity = 0;
          verdict.expect(cu.mem_granularity(&granularity, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS && granularity == k2M);
          verdict.expect(cu.mem_create(&handle, k2M + 1, &asked, 0) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(cu.address_reserve(&address, 4096, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
          asked.location.id = 1;
          verdict.expect(cu.mem_create(&handle, k2M, &asked, 0) == CUDA_ERROR_INVALID_DEVICE);
          Mapped2M memory(gpu);
          verdict.expect(memory.address % k2M == 0);
          verdict.expect(cu.mem_map(memory.address, k2M, 0, memory.handle, 0) == CUDA_ERROR_INVALID_VALUE);  // mapped already
          verdict.expect(cu.mem_unmap(memory.address, k2M / 2) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(cu.address_free(memory.address, k2M) == CUDA_ERROR_INVALID_VALUE);  // still mapped
          verdict.expect(cu.mem_free(memory.address) == CUDA_ERROR_INVALID_VALUE);
          const UniqueFd foreign(memfd_create("gradshm-slot", MFD_CLOEXEC));
          verdict.expect(cu.mem_import(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(foreign.get())), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
                         CUDA_ERROR_INVALID_VALUE);
          verdict.expect(cu.mem_import(&handle, reinterpret_cast<void*>(std::intptr_t{-1}), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_ERROR_INVALID_VALUE);
        }) == 0);
}

TEST_CASE("memory that is unmapped is not met again, though a handle keeps its bytes") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          Mapped2M first(gpu);
          gpu.fill(first.address, 0x66);
          const UniqueFd kept = first.exported();
          first.unmap();
          char byte = 0;
          verdict.expect(gpu.cu.copy_to_host(&byte, first.address, 1) == CUDA_ERROR_INVALID_VALUE);
          Mapped2M second(gpu, kept, kRead);
          verdict.expect(second.address != first.address && gpu.holds(second.address, 0x66));
        }) == 0);
}

TEST_CASE("an allocation without a shareable type is not exported") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          CUmemAllocationProp asked = on_device(0);
          asked.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
          CUmemGenericAllocationHandle handle = 0;
          int descriptor = -1;
          must(gpu.cu.mem_create(&handle, k2M, &asked, 0));
          verdict.expect(gpu.cu.mem_export(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_ERROR_INVALID_VALUE && descriptor == -1);
        }) == 0);
}
