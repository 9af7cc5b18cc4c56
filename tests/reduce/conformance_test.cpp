// The fast kernels against the reference, over the whole product of targets, types, operations, source counts and sizes.
#include <doctest/doctest.h>

#include <array>

#include "sources.hpp"

namespace gradshm::core::test {
namespace {

constexpr std::array<std::size_t, 11> kSourceCounts = {0, 1, 2, 3, 4, 7, 8, 16, 17, 64, 256};
constexpr std::array<std::size_t, 10> kSizes = {0, 1, 15, 16, 17, 63, 4095, 4096, 4097, 100003};
constexpr std::size_t kLargest = 100003;
constexpr std::size_t kStrideElems = 832;  // of one source to the next, in one pool: a multiple of 64 bytes for every type

struct Operation {
  const char* name;
  bool weighted;
  double divisor;
};
constexpr std::array<Operation, 3> kOperations = {{{"sum", false, 1}, {"divided", false, 3}, {"weighted and divided", true, 0.7}}};

// 256 sources that overlap one another (they may), because 256 separate ones of 100,003 f64 would take 200 MB.
struct Inputs {
  explicit Inputs(DType type, std::uint64_t one_in)
      : dtype(type), pool((kLargest + 256 * kStrideElems) * element_bytes(type)), weights(256) {
    fill(dtype, pool.data(), pool.size() / element_bytes(dtype), 7, one_in);
    for (std::size_t i = 0; i < 256; ++i) {
      sources.push_back(pool.data() + i * kStrideElems * element_bytes(dtype));
      weights[i] = i % 5 == 0 ? 1 : 0.1 * static_cast<double>(i) + 1e-9;
    }
  }

  [[nodiscard]] SumRun run(std::size_t count, std::size_t numel, const Operation& operation, void* out) const {
    const std::size_t weight_count = operation.weighted ? count : 0;
    return {dtype, numel, std::span(sources).first(count), std::span(weights).first(weight_count), operation.divisor, out};
  }

  DType dtype;
  Aligned<std::byte> pool;
  std::vector<const void*> sources;
  std::vector<double> weights;
};

struct Outputs {
  explicit Outputs(DType dtype) : want(kLargest * element_bytes(dtype)), got(kLargest * element_bytes(dtype)) {}
  Aligned<std::byte> want;
  Aligned<std::byte> got;
};

void check_target(HostReducer& reducer, const SumRun& want, const SumStats& want_stats, void* got_out, const std::string& target) {
  REQUIRE(force_simd_target(target));
  SumRun got = want;
  got.out = got_out;
  std::memset(got_out, 0xa5, got.numel * element_bytes(got.dtype));
  const SumStats got_stats = sum_one(reducer, got);
  const std::string elements = difference(want.out, got_out, want.dtype, want.numel);
  const std::string stats = difference(want_stats, got_stats);
  if (elements.empty() && stats.empty()) return;
  FAIL_CHECK(target, " ", dtype_name(want.dtype), " W=", want.sources.size(), " numel=", want.numel, ": ", elements, " ", stats);
}

void check_operation(HostReducer& reducer, const Inputs& inputs, const Operation& operation) {
  Outputs outputs(inputs.dtype);
  for (const std::size_t count : kSourceCounts) {
    for (const std::size_t numel : kSizes) {
      const SumRun run = inputs.run(count, numel, operation, outputs.want.data());
      const SumStats stats = reference_sum(run);
      for (const std::string& target : simd_targets()) check_target(reducer, run, stats, outputs.got.data(), target);
    }
  }
}

void check_all(std::uint64_t one_in) {
  const TargetGuard guard;
  HostReducer reducer(2);
  for (const DType dtype : kDTypes) {
    const Inputs inputs(dtype, one_in);
    for (const Operation& operation : kOperations) {
      CAPTURE(operation.name);
      check_operation(reducer, inputs, operation);
    }
  }
}

TEST_CASE("every SIMD target gives the bits of the reference for every type, operation, source count and size") { check_all(1000); }

TEST_CASE("every SIMD target gives the bits of the reference where every element is special") {
  const TargetGuard guard;
  HostReducer reducer(2);
  for (const DType dtype : kDTypes) {
    const Inputs inputs(dtype, 1);
    Outputs outputs(dtype);
    for (const std::size_t count : {1, 2, 3, 5}) {
      for (const Operation& operation : kOperations) {
        const SumRun run = inputs.run(count, 9001, operation, outputs.want.data());
        const SumStats stats = reference_sum(run);
        for (const std::string& target : simd_targets()) check_target(reducer, run, stats, outputs.got.data(), target);
      }
    }
  }
}

// The sources lie less aligned than the interface asks for, so that each ends exactly at the protected page.
void check_reads(HostReducer& reducer, DType dtype, std::size_t numel) {
  const std::size_t bytes = numel * element_bytes(dtype);
  const GuardedBytes first(bytes);
  const GuardedBytes second(bytes);
  Aligned<std::byte> out(bytes);
  const std::array<const void*, 2> sources = {first.data(), second.data()};
  for (const std::string& target : simd_targets()) {
    REQUIRE(force_simd_target(target));
    CHECK(sum_one(reducer, {dtype, numel, sources, {}, 1, out.data()}).sum_of_squares == 0);  // or SIGSEGV
  }
}

TEST_CASE("no byte beyond the last element of a source is read") {
  const TargetGuard guard;
  HostReducer reducer(2);
  for (const DType dtype : kDTypes) {
    for (std::size_t numel = 1; numel <= 130; ++numel) check_reads(reducer, dtype, numel);
    for (const std::size_t numel : {4095, 4096, 4097, 8192, 50001}) check_reads(reducer, dtype, numel);
  }
}

TEST_CASE("no page after the result is touched where the result ends with its page") {
  const TargetGuard guard;
  HostReducer reducer(1);
  for (const DType dtype : kDTypes) {
    const Aligned<std::byte> source(262144);
    const std::array<const void*, 1> sources = {source.data()};
    for (const std::size_t bytes : {64, 192, 8192, 32768 + 64, 262144}) {  // the last one by non-temporal stores
      const GuardedBytes out(bytes);
      const SumRun run{dtype, bytes / element_bytes(dtype), sources, {}, 1, out.data()};
      for (const std::string& target : simd_targets()) {
        REQUIRE(force_simd_target(target));
        CHECK(sum_one(reducer, run).sum_of_squares == 0);
      }
    }
  }
}

TEST_CASE("the bytes after the last element of the result are left alone for every tail length") {
  const TargetGuard guard;
  HostReducer reducer(1);
  for (const DType dtype : kDTypes) {
    Aligned<std::byte> source(8192 * 8);
    const std::array<const void*, 1> sources = {source.data()};
    for (std::size_t tail = 0; tail <= 130; ++tail) {
      const std::size_t bytes = (4096 + tail) * element_bytes(dtype);
      for (const std::string& target : simd_targets()) {
        REQUIRE(force_simd_target(target));
        Aligned<unsigned char> out(bytes + 256);
        std::memset(out.data(), 0xa5, out.size());
        (void)sum_one(reducer, {dtype, 4096 + tail, sources, {}, 1, out.data()});
        const bool intact = std::all_of(out.data() + bytes, out.data() + out.size(), [](unsigned char byte) { return byte == 0xa5; });
        if (!intact) FAIL_CHECK(target, " ", dtype_name(dtype), " tail ", tail);
      }
    }
  }
}

}  // namespace
}  // namespace gradshm::core::test
