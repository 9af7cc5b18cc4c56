#include "fake_cuda/kernels.hpp"

#include <atomic>
#include <cstdint>

namespace gradshm::fake {
namespace {

// (u64* word, u64 value): the value, behind everything that the stream has done before.
void publish(Grid, Block, void** parameters, Translate translate) {
  std::uint64_t* const word = translate.write<std::uint64_t>(parameter<CUdeviceptr>(parameters, 0), 1);
  // order: release, pairs with the reader's acquire; the kernel's store is st.release.sys.
  std::atomic_ref(*word).store(parameter<std::uint64_t>(parameters, 1), std::memory_order_release);
}

std::uint64_t pattern(std::uint64_t nonce, std::uint64_t index) { return nonce ^ (index * 0x9e3779b97f4a7c15); }

// (u64* words, u64 count, u64 nonce)
void fill(Grid, Block, void** parameters, Translate translate) {
  const auto count = parameter<std::uint64_t>(parameters, 1);
  std::uint64_t* const words = translate.write<std::uint64_t>(parameter<CUdeviceptr>(parameters, 0), count);
  for (std::uint64_t index = 0; index < count; ++index) words[index] = pattern(parameter<std::uint64_t>(parameters, 2), index);
}

// (u64* words, u64 count, u64 nonce, u64* differing): adds how many words are not as fill() leaves them.
void check(Grid, Block, void** parameters, Translate translate) {
  const auto count = parameter<std::uint64_t>(parameters, 1);
  const std::uint64_t* const words = translate.read<std::uint64_t>(parameter<CUdeviceptr>(parameters, 0), count);
  std::uint64_t* const differing = translate.write<std::uint64_t>(parameter<CUdeviceptr>(parameters, 3), 1);
  for (std::uint64_t index = 0; index < count; ++index) *differing += words[index] != pattern(parameter<std::uint64_t>(parameters, 2), index) ? 1 : 0;
}

// (u32* word): no look at the rights before the store, as a kernel's own code has none.
void poke(Grid, Block, void** parameters, Translate) {
  *reinterpret_cast<volatile std::uint32_t*>(parameter<CUdeviceptr>(parameters, 0)) = 1;
}

constexpr std::size_t kPointer = sizeof(CUdeviceptr), kU64 = sizeof(std::uint64_t);

}  // namespace

const FakeKernel* find_kernel(std::string_view name) {
  static const auto* const all = new std::vector<FakeKernel>{
      {"gradshm_publish", {kPointer, kU64}, publish},
      {"gradshm_fill", {kPointer, kU64, kU64}, fill},
      {"gradshm_check", {kPointer, kU64, kU64, kPointer}, check},
      {"gradshm_fake_poke", {kPointer}, poke},
  };
  for (const FakeKernel& kernel : *all)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

}  // namespace gradshm::fake
