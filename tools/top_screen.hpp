// The terminal, or what stands in for it.
#pragma once

#include <string>
#include <vector>

#include "top_loop.hpp"
#include "top_render.hpp"

namespace gradshm::tools {

class Screen {
 public:
  // live: frames replace one another, where stdout is a terminal.
  Screen(ColorChoice color, bool live);
  [[nodiscard]] View view() const;  // as large as the window is now
  // False: nobody reads any more.
  [[nodiscard]] bool show(const std::vector<std::string>& lines) const;

 private:
  bool live_ = false, color_ = false;
};

}  // namespace gradshm::tools
