#include <doctest/doctest.h>

#include <cstring>

#include "cuda/support.hpp"

using namespace gradshm::test;

namespace {

constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

// A page that processes share, for handles.
struct Mail {
  Board board;
  void put(const CUipcMemHandle& handle) { std::memcpy(place(), &handle, sizeof handle), board.set(0, 1); }
  [[nodiscard]] CUipcMemHandle take() const {
    board.wait_for(0, 1);
    CUipcMemHandle handle;
    std::memcpy(&handle, place(), sizeof handle);
    return handle;
  }

 private:
  [[nodiscard]] void* place() const { return static_cast<char*>(board.memory) + 1024; }
};

CUipcMemHandle handle_of(const Gpu& gpu, CUdeviceptr pointer) {
  CUipcMemHandle handle{};
  must(gpu.cu.ipc_get(&handle, pointer));
  return handle;
}

}  // namespace

TEST_CASE("a handle opens in another process; a second open is counted and gives the same pointer") {
  const FakeSession session;
  Mail mail;
  Child owner = start_on_fake(session.with(), [&] {
    Verdict verdict;
    const Gpu gpu;
    const CUdeviceptr memory = gpu.allocate();
    gpu.fill(memory, 0x11);
    mail.put(handle_of(gpu, memory));
    mail.board.wait_for(1, 1);
    verdict.expect(gpu.holds(memory, 0x22));
    must(gpu.cu.mem_free(memory));
    verdict.expect(gradshm::fake::counters().scribbled_frees == 0);
    return verdict.code();
  });
  CHECK(run_on_fake(session.with(), [&](Verdict& verdict) {
          const Gpu gpu;
          CUdeviceptr first = 0, second = 0;
          must(gpu.cu.ipc_open(&first, mail.take(), kLazy));
          must(gpu.cu.ipc_open(&second, mail.take(), kLazy));
          verdict.expect(first == second && gpu.holds(first, 0x11));
          must(gpu.cu.ipc_close(first));
          gpu.fill(first, 0x22);
          verdict.expect(gradshm::fake::counters().live_opens == 1);
          must(gpu.cu.ipc_close(first));
          verdict.expect(gradshm::fake::counters().live_opens == 0);
          verdict.expect(gpu.cu.ipc_close(first) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.set_bytes_async(first, 0, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
          mail.board.set(1, 1);
        }) == 0);
  CHECK(owner.wait() == 0);
}

TEST_CASE("the handle of a pointer into an allocation is that of the allocation; its own process cannot open it") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Gpu gpu;
          const CUdeviceptr memory = gpu.allocate();
          const CUipcMemHandle base = handle_of(gpu, memory), inside = handle_of(gpu, memory + 4096);
          verdict.expect(std::memcmp(&base, &inside, sizeof base) == 0);
          CUdeviceptr opened = 0;
          verdict.expect(gpu.cu.ipc_open(&opened, base, kLazy) == CUDA_ERROR_INVALID_CONTEXT);
          verdict.expect(gpu.cu.ipc_open(&opened, base, 0) == CUDA_ERROR_INVALID_VALUE);
          verdict.expect(gpu.cu.ipc_open(&opened, CUipcMemHandle{}, kLazy) == CUDA_ERROR_INVALID_HANDLE);
          Mapped2M mapped(gpu);
          CUipcMemHandle never{};
          verdict.expect(gpu.cu.ipc_get(&never, mapped.address) == CUDA_ERROR_INVALID_VALUE);  // not by legacy IPC
        }) == 0);
}

TEST_CASE("memory that is freed under an importer is scribbled over") {
  const FakeSession session;
  Mail mail;
  Child owner = start_on_fake(session.with(), [&] {
    const Gpu gpu;
    const CUdeviceptr memory = gpu.allocate();
    gpu.fill(memory, 0x11);
    mail.put(handle_of(gpu, memory));
    mail.board.wait_for(1, 1);
    must(gpu.cu.mem_free(memory));
    return gradshm::fake::counters().scribbled_frees == 1 ? 0 : 1;
  });
  Child importer = start_on_fake(session.with(), [&] {
    Verdict verdict;
    const Gpu gpu;
    CUdeviceptr memory = 0;
    must(gpu.cu.ipc_open(&memory, mail.take(), kLazy));
    mail.board.set(1, 1);
    mail.board.wait_for(2, 1);
    verdict.expect(gpu.holds(memory, 0xDB));
    return verdict.code();
  });
  CHECK(owner.wait() == 0);
  mail.board.set(2, 1);
  CHECK(importer.wait() == 0);
}

TEST_CASE("use of memory whose owner was killed is counted, and its handle opens no more") {
  const FakeSession session;
  Mail mail;
  Child owner = start_on_fake(session.with(), [&] {
    const Gpu gpu;
    mail.put(handle_of(gpu, gpu.allocate()));
    mail.board.wait_for(9, 1);  // never
    return 0;
  });
  Child importer = start_on_fake(session.with(), [&] {
    Verdict verdict;
    const Gpu gpu;
    CUdeviceptr memory = 0, again = 0;
    must(gpu.cu.ipc_open(&memory, mail.take(), kLazy));
    gpu.fill(memory, 0x11);
    verdict.expect(gradshm::fake::counters().uses_of_dead == 0);
    mail.board.set(1, 1);
    mail.board.wait_for(2, 1);
    gpu.fill(memory, 0x22);
    verdict.expect(gradshm::fake::counters().uses_of_dead == 1);
    must(gpu.cu.ipc_close(memory));
    verdict.expect(gpu.cu.ipc_open(&again, mail.take(), kLazy) == CUDA_ERROR_INVALID_HANDLE);
    return verdict.code();
  });
  mail.board.wait_for(1, 1);
  owner.kill();
  owner.wait();
  mail.board.set(2, 1);
  CHECK(importer.wait() == 0);
}

TEST_CASE("an importer that is killed no longer stands in the way of a free") {
  const FakeSession session;
  Mail mail;
  Child owner = start_on_fake(session.with(), [&] {
    const Gpu gpu;
    const CUdeviceptr memory = gpu.allocate();
    mail.put(handle_of(gpu, memory));
    mail.board.wait_for(2, 1);
    must(gpu.cu.mem_free(memory));
    return gradshm::fake::counters().scribbled_frees == 0 ? 0 : 1;
  });
  Child importer = start_on_fake(session.with(), [&] {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    must(gpu.cu.ipc_open(&memory, mail.take(), kLazy));
    mail.board.set(1, 1);
    mail.board.wait_for(9, 1);  // never
    return 0;
  });
  mail.board.wait_for(1, 1);
  importer.kill();
  importer.wait();
  mail.board.set(2, 1);
  CHECK(owner.wait() == 0);
}

TEST_CASE("a stale handle does not open what came into the place of its memory") {
  const FakeSession session;
  Mail mail;
  Child owner = start_on_fake(session.with(), [&] {
    const Gpu gpu;
    const CUdeviceptr memory = gpu.allocate();
    const CUipcMemHandle stale = handle_of(gpu, memory);
    must(gpu.cu.mem_free(memory));
    static_cast<void>(gpu.allocate());
    mail.put(stale);
    mail.board.wait_for(1, 1);
    return 0;
  });
  CHECK(run_on_fake(session.with(), [&](Verdict& verdict) {
          const Gpu gpu;
          CUdeviceptr memory = 0;
          verdict.expect(gpu.cu.ipc_open(&memory, mail.take(), kLazy) == CUDA_ERROR_INVALID_HANDLE);
          mail.board.set(1, 1);
        }) == 0);
  CHECK(owner.wait() == 0);
}
