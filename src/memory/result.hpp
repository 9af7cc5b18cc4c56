// The result object: one buffer of reduced gradients, a header per bucket. Written by the server only.
#pragma once

#include <cstdint>

#include "layout/layout.hpp"
#include "memory/shared.hpp"

namespace gradshm::core {

struct ResultHeader {
  ObjectHeader object;
  std::uint32_t buckets = 0, parameters = 0;
  std::uint64_t buckets_offset = 0, parameters_offset = 0, gradients_offset = 0;
  std::uint64_t gradient_bytes = 0;
};

struct BucketResult {
  alignas(kLineBytes) std::uint64_t writing = 0;  // stored before the bytes change
  std::uint64_t round = 0;                        // stored after: equal to writing = the bytes are of this round
  std::uint64_t contributors[kRankWords] = {};
  std::uint64_t weight_sum_bits = 0;              // of the contributors, f64
  std::uint32_t count = 0;                        // contributors
  std::uint32_t uniform = 0;                      // 1: the same for each of its parameters; 0: see ParameterResult
};
static_assert(sizeof(BucketResult) == kLineBytes);

struct ParameterResult {
  std::uint64_t weight_sum_bits = 0;
  std::uint64_t count = 0;
};

struct ResultObject {
  MemFd file;
  Mapping mapping;
  BucketResult* buckets = nullptr;        // by bucket index
  ParameterResult* parameters = nullptr;  // by parameter index
  std::byte* gradients = nullptr;
};

// Bytes of the whole object, for the space check.
[[nodiscard]] std::uint64_t result_bytes(const Layout& layout);
[[nodiscard]] ResultObject create_result(const Layout& layout, std::uint64_t incarnation);
[[nodiscard]] ResultObject open_result(MemFd file, const Layout& layout, std::uint64_t incarnation);

}  // namespace gradshm::core
