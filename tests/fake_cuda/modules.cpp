// Modules and launches. A module holds every kernel there is.
#include <algorithm>
#include <cstring>
#include <set>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/context.hpp"
#include "fake_cuda/counts.hpp"
#include "fake_cuda/guard.hpp"
#include "fake_cuda/kernels.hpp"
#include "fake_cuda/streams.hpp"

namespace gradshm::fake {
namespace {

constexpr unsigned char kFatbin[] = {0x50, 0xED, 0x55, 0xBA}, kFake[] = {'F', 'A', 'K', 'E'};
constexpr std::uint64_t kThreadsPerMultiprocessor = 2048, kMostThreads = 1024, kMostBlocks = 32, kMostShared = 227 << 10;

struct Module;
struct Function {
  Module* module;
  const FakeKernel* kernel;
};
struct Module {
  Context* context;
  std::vector<std::unique_ptr<Function>> functions;
};

struct Modules {
  std::mutex mutex;
  std::set<std::unique_ptr<Module>> loaded;
};

Modules& modules() {
  static Modules* const only = new Modules;
  return *only;
}

auto find_module(CUmodule handle) {
  const auto found = std::ranges::find_if(modules().loaded, [&](const auto& module) { return module.get() == reinterpret_cast<Module*>(handle); });
  require(found != modules().loaded.end(), CUDA_ERROR_INVALID_HANDLE);
  return found;
}

const FakeKernel& find_function(const Context& context, CUfunction handle) {
  const std::lock_guard guard(modules().mutex);
  for (const auto& module : modules().loaded)
    for (const auto& function : module->functions)
      if (function.get() == reinterpret_cast<Function*>(handle) && module->context == &context) return *function->kernel;
  throw Refusal{CUDA_ERROR_INVALID_HANDLE};
}

// The caller's parameters may be gone when the kernel runs.
struct Parameters {
  Parameters(const FakeKernel& kernel, void** given) {
    for (std::size_t index = 0; index < kernel.parameter_bytes.size(); ++index) {
      require(given != nullptr && given[index] != nullptr);
      values.emplace_back(kernel.parameter_bytes[index]);
      std::memcpy(values.back().data(), given[index], kernel.parameter_bytes[index]);
    }
  }
  std::vector<std::vector<unsigned char>> values;
};

void run(Context& context, const FakeKernel& kernel, Grid grid, Block block, Parameters& parameters) {
  std::vector<void*> pointers;
  for (auto& value : parameters.values) pointers.push_back(value.data());
  run_guarded([&] { kernel.run(grid, block, pointers.data(), Translate(context)); });
  counts().launches.add();
}

void check_sizes(Grid grid, Block block, unsigned shared_bytes) {
  require(grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 && grid.z <= 65535 && grid.x <= INT32_MAX);
  require(block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64 && std::uint64_t{block.x} * block.y * block.z <= kMostThreads);
  require(shared_bytes <= kMostShared);
}

}  // namespace
}  // namespace gradshm::fake

using namespace gradshm::fake;

CUresult CUDAAPI cuModuleLoadData(CUmodule* ret_module, const void* image) {
  return in_context("cuModuleLoadData", [&](Context& context) {
    require(ret_module != nullptr && image != nullptr);
    require(std::memcmp(image, kFatbin, sizeof kFatbin) == 0 || std::memcmp(image, kFake, sizeof kFake) == 0, CUDA_ERROR_INVALID_IMAGE);
    const std::lock_guard guard(modules().mutex);
    *ret_module = reinterpret_cast<CUmodule>(modules().loaded.insert(std::make_unique<Module>(Module{&context, {}})).first->get());
  });
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle) {
  return in_context("cuModuleUnload", [&](Context& context) {
    synchronize(context);
    const std::lock_guard guard(modules().mutex);
    modules().loaded.erase(find_module(handle));
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* ret_function, CUmodule handle, const char* name) {
  return in_context("cuModuleGetFunction", [&](Context&) {
    require(ret_function != nullptr && name != nullptr);
    const std::lock_guard guard(modules().mutex);
    Module& module = **find_module(handle);
    const FakeKernel* const kernel = find_kernel(name);
    require(kernel != nullptr, CUDA_ERROR_NOT_FOUND);
    module.functions.push_back(std::make_unique<Function>(Function{&module, kernel}));
    *ret_function = reinterpret_cast<CUfunction>(module.functions.back().get());
  });
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* ret_blocks, CUfunction function, int threads, std::size_t shared_bytes) {
  return in_context("cuOccupancyMaxActiveBlocksPerMultiprocessor", [&](Context& context) {
    require(ret_blocks != nullptr && threads > 0 && static_cast<std::uint64_t>(threads) <= kMostThreads && shared_bytes <= kMostShared);
    static_cast<void>(find_function(context, function));
    const std::uint64_t by_threads = kThreadsPerMultiprocessor / static_cast<std::uint64_t>(threads);
    const std::uint64_t by_shared = shared_bytes == 0 ? kMostBlocks : kMostShared / shared_bytes;
    *ret_blocks = static_cast<int>(std::min({by_threads, by_shared, kMostBlocks}));
  });
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
  return in_context("cuLaunchKernel", [&](Context& context) {
    const FakeKernel& kernel = find_function(context, function);
    const Grid grid{grid_x, grid_y, grid_z};
    const Block block{block_x, block_y, block_z};
    require(extra == nullptr);
    check_sizes(grid, block, shared_bytes);
    enqueue(stream_of(stream, context),
            {"kernel", [&context, &kernel, grid, block, copied = Parameters(kernel, parameters)]() mutable { run(context, kernel, grid, block, copied); }, {}});
  });
}
