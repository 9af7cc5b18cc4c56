// The result of a benchmark for people and for programs.
#pragma once

#include <string>

#include "allreduce.hpp"

namespace gradshm::bench {

[[nodiscard]] std::string table_of(const AllreduceOptions& options, const AllreduceResult& result);
// One line; docs/performance.md lists the fields.
[[nodiscard]] std::string json_of(const AllreduceOptions& options, const AllreduceResult& result);

}  // namespace gradshm::bench
