// A layout as a table, as JSON, and in one line.
#pragma once

#include <string>

#include "layout/layout.hpp"

namespace gradshm::tools {

[[nodiscard]] std::string layout_totals(const core::Layout& layout);  // "218 parameters, 21,797,672 elements, ..., fingerprint ..."
[[nodiscard]] std::string layout_table(const core::Layout& layout, std::size_t width);  // a line a parameter, then the totals
[[nodiscard]] std::string layout_json_line(const core::Layout& layout);

}  // namespace gradshm::tools
