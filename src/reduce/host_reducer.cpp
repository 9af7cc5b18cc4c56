// Cuts runs into chunks, spreads the chunks over the pool, and puts the partial results together in an order that does not depend on
// who did what.
#include <hwy/cache_control.h>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "reduce/half.hpp"
#include "reduce/host_kernels.hpp"
#include "reduce/nonfinite.hpp"

namespace gradshm::core {
namespace {

constexpr std::uint64_t kChunkOutBytes = 64 << 10;     // with its sources it fits L2, and a small bucket still feeds many CPUs
constexpr std::uint64_t kInlineReadBytes = 256 << 10;  // waking the pool costs more than reading this
constexpr std::uint64_t kCachedOutBytes = 256 << 10;   // below, the readers find the result in cache

struct Chunk {
  std::size_t run = 0;
  std::uint64_t first_tile = 0;
  std::uint64_t tiles = 0;
  std::size_t first_square = 0;  // its place in Pool::tile_squares
};

// Rounding to nearest and denormals kept, whatever the thread was set to (a caller with flush-to-zero would get other sums).
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t saved_;
};

std::uint64_t tile_count(const SumRun& run) { return run.numel / kTileElems + (run.numel % kTileElems != 0 ? 1 : 0); }
std::uint64_t out_bytes(const SumRun& run) { return run.numel * element_bytes(run.dtype); }

void zero_chunk(const SumRun& run, const Chunk& chunk, double* squares) {
  const std::uint64_t first = chunk.first_tile * kTileElems;
  const std::uint64_t elems = std::min(chunk.tiles * kTileElems, run.numel - first);
  std::memset(static_cast<char*>(run.out) + first * element_bytes(run.dtype), 0, elems * element_bytes(run.dtype));
  std::fill_n(squares, chunk.tiles, 0.0);
}

// Asked only about tiles whose sum of squares is not finite. A finite one had only finite results, and these only finite sources: no
// product, sum or division of the kind done here makes a NaN or an infinity finite (infinity times 0 and infinity / infinity are NaN).
struct NonfiniteCounts {
  std::uint64_t result = 0;
  std::vector<std::uint64_t> by_source;

  void add_tile(const SumRun& run, std::uint64_t tile) {
    const std::uint64_t first = tile * kTileElems;
    const std::uint64_t elems = std::min(kTileElems, run.numel - first);
    result += count_nonfinite(run.dtype, run.out, first, elems);
    by_source.resize(run.sources.size());
    for (std::size_t source = 0; source < by_source.size(); ++source) {
      by_source[source] += count_nonfinite(run.dtype, run.sources[source], first, elems);
    }
  }

  void add_to(SumStats& stats) const {
    stats.nonfinite_result += result;
    if (std::all_of(by_source.begin(), by_source.end(), [](std::uint64_t count) { return count == 0; })) return;
    stats.nonfinite_by_source.resize(by_source.size());
    for (std::size_t source = 0; source < by_source.size(); ++source) stats.nonfinite_by_source[source] += by_source[source];
  }
};

}  // namespace

struct HostReducer::Pool {
  explicit Pool(unsigned wanted)
      : threads(wanted != 0 ? wanted : static_cast<unsigned>(tbb::info::default_concurrency())), arena(static_cast<int>(threads)) {
    // oneTBB has no more workers than CPUs, unless told so.
    if (threads > static_cast<unsigned>(tbb::info::default_concurrency())) {
      more_workers.emplace(tbb::global_control::max_allowed_parallelism, threads);
    }
  }

  void plan(std::span<const SumRun> runs);
  void sum_chunk(std::span<const SumRun> runs, std::span<SumStats> stats, const Chunk& chunk);
  void sum_all(std::span<const SumRun> runs, std::span<SumStats> stats);
  void finish(std::span<const SumRun> runs, std::span<SumStats> stats) const;

  unsigned threads;
  std::optional<tbb::global_control> more_workers;
  tbb::task_arena arena;

  // Of the call in progress; kept, so that the steady state allocates nothing.
  std::vector<Chunk> chunks;
  std::vector<double> tile_squares;
  SumTiles kernel = nullptr;
  Stores stores = Stores::cached;
  std::uint64_t read_bytes = 0;
  std::mutex stats_mutex;  // held only to report something not finite
};

void HostReducer::Pool::plan(std::span<const SumRun> runs) {
  chunks.clear();
  std::uint64_t squares = 0;
  std::uint64_t written_bytes = 0;
  read_bytes = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    assert(runs[i].weights.empty() || runs[i].weights.size() == runs[i].sources.size());
    const std::uint64_t tiles = tile_count(runs[i]);
    const std::uint64_t tiles_a_chunk = kChunkOutBytes / (kTileElems * element_bytes(runs[i].dtype));
    for (std::uint64_t tile = 0; tile < tiles; tile += tiles_a_chunk) {
      chunks.push_back({i, tile, std::min(tiles_a_chunk, tiles - tile), squares + tile});
    }
    squares += tiles;
    written_bytes += out_bytes(runs[i]);
    read_bytes += out_bytes(runs[i]) * runs[i].sources.size();
  }
  tile_squares.resize(squares);
  stores = written_bytes < kCachedOutBytes ? Stores::cached : Stores::non_temporal;
  kernel = sum_tiles_in_use();
}

void HostReducer::Pool::sum_chunk(std::span<const SumRun> runs, std::span<SumStats> stats, const Chunk& chunk) {
  const SumRun& run = runs[chunk.run];
  double* squares = tile_squares.data() + chunk.first_square;
  if (run.sources.empty()) return zero_chunk(run, chunk, squares);
  kernel(run, stores, chunk.first_tile, chunk.tiles, squares);
  // Before the chunk counts as done: a release store elsewhere does not order this thread's non-temporal stores.
  if (stores == Stores::non_temporal) hwy::FlushStream();
  NonfiniteCounts counts;
  for (std::uint64_t tile = 0; tile < chunk.tiles; ++tile) {
    if (!std::isfinite(squares[tile])) counts.add_tile(run, chunk.first_tile + tile);
  }
  if (counts.by_source.empty()) return;
  const std::lock_guard lock(stats_mutex);
  counts.add_to(stats[chunk.run]);
}

void HostReducer::Pool::sum_all(std::span<const SumRun> runs, std::span<SumStats> stats) {
  if (threads == 1 || read_bytes < kInlineReadBytes) {
    const DefaultFloatingPoint guard;
    for (const Chunk& chunk : chunks) sum_chunk(runs, stats, chunk);
    return;
  }
  const auto sum_range = [&](const tbb::blocked_range<std::size_t>& range) {
    const DefaultFloatingPoint guard;
    for (std::size_t i = range.begin(); i != range.end(); ++i) sum_chunk(runs, stats, chunks[i]);
  };
  // The auto partitioner hands out long stretches first, which the hardware prefetchers like, and small ones when a thread runs late.
  const tbb::blocked_range<std::size_t> all(0, chunks.size());
  arena.execute([&] { tbb::parallel_for(all, sum_range, tbb::auto_partitioner()); });
}

void HostReducer::Pool::finish(std::span<const SumRun> runs, std::span<SumStats> stats) const {
  const double* tile = tile_squares.data();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    double sum = 0;
    for (const double* end = tile + tile_count(runs[i]); tile != end; ++tile) sum += *tile;
    stats[i].sum_of_squares = std::isnan(sum) ? std::bit_cast<double>(kF64NaN) : sum;
  }
}

HostReducer::HostReducer(unsigned threads) : pool_(std::make_unique<Pool>(threads)) {}
HostReducer::~HostReducer() = default;

unsigned HostReducer::threads() const noexcept { return pool_->threads; }

void HostReducer::sum(std::span<const SumRun> runs, std::span<SumStats> stats) {
  assert(runs.size() == stats.size());
  std::fill(stats.begin(), stats.end(), SumStats{});
  pool_->plan(runs);
  pool_->sum_all(runs, stats);
  pool_->finish(runs, stats);
}

}  // namespace gradshm::core
