// The sections of the table, each as columns and rows or as lines; top_render.cpp puts them together.
#pragma once

#include <string>
#include <vector>

#include "cli_table.hpp"
#include "client/snapshot.hpp"

namespace gradshm::tools {

// Three lines of items, each to be wrapped.
[[nodiscard]] std::vector<std::vector<std::string>> header_items(const core::Snapshot& snapshot, const core::Layout& layout);

[[nodiscard]] std::vector<Column> worker_columns();
[[nodiscard]] Row worker_row(const core::Snapshot& snapshot, const core::MemberSnapshot& member);

[[nodiscard]] std::vector<Column> round_columns(const core::Layout& layout);
[[nodiscard]] Row round_row(const core::RoundSnapshot& round, const core::Layout& layout);

[[nodiscard]] std::vector<Column> event_columns();
[[nodiscard]] Row event_row(const core::Snapshot& snapshot, const core::Event& event);

}  // namespace gradshm::tools
