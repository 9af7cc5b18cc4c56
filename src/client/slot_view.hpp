// A look into a worker's slot from outside, for tools. Nobody waits for the onlooker, so the worker may be writing meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "client/view.hpp"
#include "memory/slot.hpp"

namespace gradshm::core {

// What the copied bytes are.
enum class SlotState {
  writing,    // of no round: the worker has not committed the bucket, or did so while it was copied
  closed,     // committed to `round`, which has closed: the worker may be writing the next one
  committed,  // committed to the open `round`, so they stay untouched until it closes
};

struct SlotCopy {
  SlotState state = SlotState::writing;
  std::uint64_t round = 0;  // the worker's newest committed one of this bucket, 0 = none
  double weight = 0;        // of that commit
  bool present = false;     // that commit contributed this parameter
};

class SlotView {
 public:
  // `view` must outlive it and be of the same server. Throws Error: not_found (no such worker, no slot yet, a parameter that a partial
  // worker has not), daemon_lost where another server answers by now.
  SlotView(const std::string& instance, const InstanceView& view, unsigned rank, std::size_t parameter, const Deadline& deadline);

  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] int pid() const noexcept { return pid_; }
  // Copies the parameter's bytes.
  [[nodiscard]] SlotCopy read(void* data) const noexcept;

 private:
  [[nodiscard]] bool is_present(const CommitBlock& block) const noexcept;

  const InstanceView& view_;
  std::size_t parameter_;
  SlotShape shape_;
  Mapping slot_;  // read-only
  std::uint64_t generation_ = 0;
  int pid_ = 0;
};

}  // namespace gradshm::core
