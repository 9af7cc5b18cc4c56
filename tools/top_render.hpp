// The table of gradshm-top: from a snapshot to lines, nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/snapshot.hpp"

namespace gradshm::tools {

struct View {
  std::size_t width = 80;
  std::size_t height = 0;  // lines at most; 0 = as many as it takes
  bool color = false;
};

[[nodiscard]] std::vector<std::string> render(const core::Snapshot& snapshot, const core::Layout& layout, const View& view);
// Of a server whose memory nobody holds any more: what its beacon said last.
[[nodiscard]] std::vector<std::string> render_dead(const core::BeaconData& beacon, std::uint64_t now_ns, const View& view);

}  // namespace gradshm::tools
