// operator new of this program: what the code under test allocates comes from one block, which is forgotten as a whole after each execution.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "interleave/explorer.hpp"

namespace {
constexpr std::size_t kBlockBytes = 16 << 20, kAlignment = 16;
alignas(kAlignment) std::byte block[kBlockBytes];
std::size_t used = 0;
bool apart = false;

bool is_apart(const void* memory) { return memory >= block && memory < block + kBlockBytes; }
}  // namespace

namespace gradshm::test {
bool keep_allocations_apart(bool on) noexcept { return std::exchange(apart, on); }
void forget_allocations() noexcept { used = 0; }
}  // namespace gradshm::test

void* operator new(std::size_t bytes) {
  if (!apart) {
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
  }
  void* const memory = block + used;
  used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used > kBlockBytes) std::fprintf(stderr, "interleave: one execution allocates too much\n"), std::abort();
  return memory;
}
void operator delete(void* memory) noexcept {
  if (!is_apart(memory)) std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
