// The signals that `gradshm run` passes on, as readable events.
#pragma once

#include <optional>

#include "base/unique_fd.hpp"

namespace gradshm::tools {

struct Signal {
  int number = 0;
  bool by_terminal = false;  // ^C or hang-up: the workers, in the same process group, have it already
};

class Signals {
 public:
  Signals();  // blocks them in this process for good; children get the empty mask
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::optional<Signal> next() const;  // nullopt: none is pending

 private:
  core::UniqueFd fd_;
};

[[nodiscard]] bool asks_to_end(const Signal& signal) noexcept;

}  // namespace gradshm::tools
