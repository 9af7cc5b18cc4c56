// One parameter's values, copied out of a result or a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.hpp"

namespace gradshm::tools {

// Of the result: what and whose it is.
struct ResultPart {
  std::string op;
  std::uint64_t count = 0;  // workers in it
  double weight_sum = 0;
};

struct SlotPart {
  unsigned rank = 0;
  std::uint64_t generation = 0;
  int pid = 0;
  double weight = 0;     // of the commit to `round`
  bool present = false;  // in that commit
};

enum class DumpState { closed, committed, writing };  // closed: of a slot, its worker may be writing again

struct Dump {
  std::string instance, group;
  core::Parameter parameter;
  std::uint32_t bucket = 0;
  std::vector<std::byte> bytes;
  DumpState state = DumpState::closed;
  std::uint64_t round = 0;  // the result's, or the one that the worker committed the bucket to last; 0 = none
  std::optional<ResultPart> result;
  std::optional<SlotPart> slot;  // one of the two
};

// Of the finite elements; all 0 where there is none.
struct Stats {
  std::uint64_t finite = 0, nan = 0, infinite = 0;
  double norm = 0, min = 0, max = 0, mean = 0;
};

[[nodiscard]] double value_at(const Dump& dump, std::uint64_t index);
[[nodiscard]] Stats stats_of(const Dump& dump);
// The fewest digits that give the same f32 back (f64 for f64): "0.1", "nan", "-inf".
[[nodiscard]] std::string value_text(const Dump& dump, std::uint64_t index);

[[nodiscard]] std::string dump_text(const Dump& dump, bool all);
[[nodiscard]] std::string dump_json_line(const Dump& dump, bool all);

// Up to three names or aliases of the layout that look most like this one, best first.
[[nodiscard]] std::vector<std::string> closest_names(const core::Layout& layout, const std::string& name);

}  // namespace gradshm::tools
