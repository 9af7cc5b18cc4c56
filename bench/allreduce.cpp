#include "allreduce.hpp"

#include <gradshm/gradshm.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <thread>

#include "floor.hpp"
#include "processes.hpp"
#include "statistics.hpp"
#include "worker.hpp"

namespace gradshm::bench {

volatile std::sig_atomic_t interrupted = 0;

namespace {

// Short enough that the machine's bandwidth, which moves within seconds, is the same for a block and the floors beside it.
constexpr unsigned kRoundsPerBlock = 5;
constexpr unsigned kFloorsPerMeasurement = 5;
constexpr unsigned kWarmUpBlocks = 1;  // pages of the result are touched, threads started; not counted
constexpr std::int64_t kWatchSlice_ns = 20'000'000;

DType parse_dtype(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    if (name == gradshm_dtype_name(static_cast<int>(dtype))) return dtype;
  }
  throw std::runtime_error("unknown dtype '" + name + "'");
}

Layout make_layout(const AllreduceOptions& options) {
  if (options.layout_path.ends_with(".safetensors")) return Layout::from_safetensors(options.layout_path);
  if (!options.layout_path.empty()) return Layout::from_tsv(options.layout_path);
  Layout layout;
  layout.add("gradient", parse_dtype(options.dtype), {static_cast<std::int64_t>(options.numel)});
  return layout;
}

std::vector<std::string> daemon_arguments(const AllreduceOptions& options) {
  const std::string workers = std::to_string(options.workers);
  // sum: what the floor computes.
  std::vector<std::string> arguments{"--op", "sum", "--expect", workers, "--max-workers", workers};
  const auto add = [&](const char* name, std::uint64_t value) {
    if (value != 0) arguments.insert(arguments.end(), {name, std::to_string(value)});
  };
  add("--bucket-bytes", options.bucket_bytes);
  add("--reducer-threads", options.reducer_threads);
  return arguments;
}

// The daemon and the workers; the workers sleep except in run_block.
class Fleet {
 public:
  Fleet(const AllreduceOptions& options, const Job& shape);
  Facts attach();
  void run_block();
  std::int64_t latency_ns(unsigned round);

 private:
  void wait_all_finished();
  void watch();  // throws where one has ended

  unsigned workers_count_;
  Layout layout_;
  Board board_;
  Daemon daemon_;
  std::deque<Child> workers_;
};

Fleet::Fleet(const AllreduceOptions& options, const Job& shape)
    : workers_count_(options.workers),
      layout_(make_layout(options)),
      board_(options.workers, shape.blocks * shape.rounds_per_block),
      daemon_(options.daemon, daemon_arguments(options)) {
  Job job = shape;
  job.instance = daemon_.instance();
  for (unsigned worker = 0; worker < options.workers; ++worker) {
    workers_.emplace_back("worker " + std::to_string(worker), SIGKILL, [&, worker] {
      try {
        work(job, layout_, worker, board_);
        return 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "gradshm-bench: worker %u: %s\n", worker, error.what());
        return 1;
      }
    });
  }
}

Facts Fleet::attach() {
  wait_all_finished();
  return board_.facts();
}

void Fleet::run_block() {
  board_.start();
  wait_all_finished();
}

void Fleet::wait_all_finished() {
  for (unsigned finished = 0; finished < workers_count_;) {
    if (interrupted != 0) throw std::runtime_error("interrupted");
    if (board_.wait_one_finished(kWatchSlice_ns)) {
      ++finished;
    } else {
      watch();
    }
  }
}

void Fleet::watch() {
  if (const auto ended = daemon_.how_it_ended()) throw std::runtime_error(*ended + "; it said:\n" + daemon_.log());
  for (Child& worker : workers_) {
    if (const auto ended = worker.how_it_ended()) throw std::runtime_error(*ended + " in the middle of the run");
  }
}

std::int64_t Fleet::latency_ns(unsigned round) {
  Stamp last{};
  for (unsigned worker = 0; worker < workers_count_; ++worker) {
    const Stamp& stamp = board_.stamp(round, worker);
    last.commit_ns = std::max(last.commit_ns, stamp.commit_ns);
    last.seen_ns = std::max(last.seen_ns, stamp.seen_ns);
  }
  return last.seen_ns - last.commit_ns;
}

// A terminal gets a counter, a log file one line.
void show_progress(unsigned block, unsigned blocks) {
  if (isatty(STDERR_FILENO) == 1) {
    std::fprintf(stderr, "\rgradshm-bench: block %u of %u%s", block, blocks, block == blocks ? "\n" : "");
  } else if (block == 1) {
    std::fprintf(stderr, "gradshm-bench: measuring %u blocks of rounds\n", blocks);
  }
}

// Alternates: floor, block, floor, block, ..., floor.
class Comparison {
 public:
  Comparison(Fleet& fleet, Floor& floor, AllreduceResult& result) : fleet_(fleet), floor_(floor), result_(result) {
    floor_before_ = measure_floor();
  }
  void add_block(unsigned first_round, unsigned rounds) {
    fleet_.run_block();
    std::vector<std::int64_t> latencies;
    for (unsigned round = first_round; round < first_round + rounds; ++round) latencies.push_back(fleet_.latency_ns(round));
    const auto floor_after = measure_floor();
    result_.latencies_ns.insert(result_.latencies_ns.end(), latencies.begin(), latencies.end());
    result_.ratios.push_back(2.0 * static_cast<double>(median(latencies)) / static_cast<double>(floor_before_ + floor_after));
    floor_before_ = floor_after;
  }

 private:
  std::int64_t measure_floor() {
    const auto floors = floor_.measure_ns(kFloorsPerMeasurement);
    result_.floors_ns.insert(result_.floors_ns.end(), floors.begin(), floors.end());
    return median(floors);
  }

  Fleet& fleet_;
  Floor& floor_;
  AllreduceResult& result_;
  std::int64_t floor_before_;
};

}  // namespace

AllreduceResult run_allreduce(const AllreduceOptions& options) {
  const unsigned rounds_per_block = std::min(kRoundsPerBlock, options.rounds);
  const unsigned blocks = kWarmUpBlocks + (options.rounds + rounds_per_block - 1) / rounds_per_block;
  Fleet fleet(options, {.instance = {}, .workers = options.workers, .blocks = blocks, .rounds_per_block = rounds_per_block});
  AllreduceResult result{};
  result.facts = fleet.attach();
  result.floor_threads = options.floor_threads != 0 ? options.floor_threads : std::thread::hardware_concurrency();
  Floor floor(options.workers, result.facts.bytes, result.floor_threads);
  for (unsigned block = 0; block < kWarmUpBlocks; ++block) fleet.run_block();
  Comparison comparison(fleet, floor, result);
  for (unsigned block = kWarmUpBlocks; block < blocks; ++block) {
    show_progress(block - kWarmUpBlocks + 1, blocks - kWarmUpBlocks);
    comparison.add_block(block * rounds_per_block, rounds_per_block);
  }
  return result;
}

}  // namespace gradshm::bench
