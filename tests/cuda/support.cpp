#include "cuda/support.hpp"

#include <sys/socket.h>

#include <cstring>
#include <stdexcept>

namespace gradshm::test {

std::string fake_path() { return build_path("tests/fake_cuda/libcuda.so.1"); }

Child start_on_fake(const Settings& settings, const std::function<int()>& body) {
  return Child([&] {
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("GRADSHM_CUDA_DRIVER", fake_path().c_str(), 1);
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    return body();
  });
}

int run_on_fake(const Settings& settings, const std::function<void(Verdict&)>& body) {
  return start_on_fake(settings, [&] {
           Verdict verdict;
           body(verdict);
           return verdict.code();
         }).wait();
}

void must(CUresult code, int line) {
  if (code != CUDA_SUCCESS) throw std::runtime_error(core::cuda::describe(("the call in line " + std::to_string(line)).c_str(), code));
}

Gpu::Gpu(int ordinal) : cu(core::cuda::driver()) {
  must(cu.device_get(&device, ordinal));
  must(cu.primary_ctx_retain(&context, device));
  must(cu.ctx_push(context));
}

Gpu::~Gpu() {
  static_cast<void>(cu.ctx_pop(nullptr));
  static_cast<void>(cu.primary_ctx_release(device));
}

CUstream Gpu::stream(unsigned flags) const {
  CUstream made = nullptr;
  must(cu.stream_create(&made, flags));
  return made;
}

CUfunction Gpu::kernel(const char* name) const {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  must(cu.module_load(&module, "FAKE"));
  must(cu.module_function(&function, module, name));
  return function;
}

CUdeviceptr Gpu::allocate(std::size_t bytes) const {
  CUdeviceptr pointer = 0;
  must(cu.mem_alloc(&pointer, bytes));
  return pointer;
}

void Gpu::fill(CUdeviceptr pointer, unsigned char value, std::size_t bytes) const {
  must(cu.set_bytes_async(pointer, value, bytes, nullptr));
  must(cu.stream_synchronize(nullptr));
}

bool Gpu::holds(CUdeviceptr pointer, unsigned char value, std::size_t bytes) const {
  const std::string expected(bytes, static_cast<char>(value));
  std::string found(bytes, '\0');
  must(cu.copy_to_host(found.data(), pointer, bytes));
  return found == expected;
}

std::size_t Gpu::free_bytes() const {
  std::size_t free = 0, total = 0;
  must(cu.mem_info(&free, &total));
  return free;
}

CUmemAllocationProp on_device(int ordinal) {
  CUmemAllocationProp asked{};
  asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  asked.location.id = ordinal;
  asked.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return asked;
}

CUmemAccessDesc rights_of(int ordinal, CUmemAccess_flags rights) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = rights;
  return access;
}

Mapped2M::Mapped2M(const Gpu& on, CUmemAccess_flags rights) : gpu(on) {
  const CUmemAllocationProp asked = on_device(gpu.device);
  must(gpu.cu.mem_create(&handle, Gpu::kChunk, &asked, 0));
  map(rights);
}

Mapped2M::Mapped2M(const Gpu& on, const UniqueFd& imported, CUmemAccess_flags rights) : gpu(on) {
  must(gpu.cu.mem_import(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(imported.get())), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  map(rights);
}

void Mapped2M::map(CUmemAccess_flags rights) {
  must(gpu.cu.address_reserve(&address, Gpu::kChunk, 0, 0, 0));
  must(gpu.cu.mem_map(address, Gpu::kChunk, 0, handle, 0));
  const CUmemAccessDesc access = rights_of(gpu.device, rights);
  must(gpu.cu.mem_set_access(address, Gpu::kChunk, &access, 1));
}

UniqueFd Mapped2M::exported() const {
  int descriptor = -1;
  must(gpu.cu.mem_export(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return UniqueFd(descriptor);
}

void Mapped2M::unmap() {
  must(gpu.cu.mem_unmap(address, Gpu::kChunk));
  must(gpu.cu.address_free(address, Gpu::kChunk));
  must(gpu.cu.mem_release(handle));
}

namespace {
struct Letter {
  char byte = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec content{&byte, 1};
  msghdr header{};
  Letter() { header.msg_iov = &content, header.msg_iovlen = 1, header.msg_control = control, header.msg_controllen = sizeof control; }
};
}  // namespace

Channel::Channel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair failed");
  ends_[0].reset(ends[0]), ends_[1].reset(ends[1]);
}

void Channel::send(const UniqueFd& descriptor) const {
  Letter letter;
  cmsghdr* const part = CMSG_FIRSTHDR(&letter.header);
  part->cmsg_level = SOL_SOCKET, part->cmsg_type = SCM_RIGHTS, part->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = descriptor.get();
  std::memcpy(CMSG_DATA(part), &number, sizeof number);
  if (sendmsg(ends_[0].get(), &letter.header, 0) != 1) throw std::runtime_error("sendmsg failed");
}

UniqueFd Channel::receive() const {
  Letter letter;
  int number = -1;
  if (recvmsg(ends_[1].get(), &letter.header, MSG_CMSG_CLOEXEC) != 1) throw std::runtime_error("recvmsg failed");
  std::memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&letter.header)), sizeof number);
  return UniqueFd(number);
}

Settings FakeSession::with(Settings settings) const {
  settings["GRADSHM_FAKE_SESSION"] = directory_.path() + "/fake-cuda";
  return settings;
}

}  // namespace gradshm::test
