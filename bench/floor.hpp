// The memory floor of a W-way sum: resident arrays, all cores, the widest loads and non-temporal stores, no protocol. What a
// reduction that did nothing but move the bytes would take on this machine in this minute.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace gradshm::bench {

class Floor {
 public:
  // `bytes` of f32 an array, rounded up to 256. Starts threads: fork before.
  Floor(unsigned arrays, std::size_t bytes, unsigned threads);
  ~Floor();
  Floor(const Floor&) = delete;
  Floor& operator=(const Floor&) = delete;

  std::vector<std::int64_t> measure_ns(unsigned times);

 private:
  std::int64_t measure_once_ns();
  void serve();
  void sum_chunks();

  std::size_t floats_;
  std::vector<float*> inputs_;
  float* output_;
  std::atomic<std::size_t> next_{0};  // float that nobody has taken yet
  std::barrier<> gate_;
  bool stop_ = false;  // written before, read after the gate
  std::vector<std::thread> pool_;
};

}  // namespace gradshm::bench
