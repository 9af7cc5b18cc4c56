// The document that `gradshm-top --json` prints; docs/json.md lists its fields.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "client/snapshot.hpp"

namespace gradshm::tools {

inline constexpr int kJsonSchema = 1;

[[nodiscard]] nlohmann::ordered_json snapshot_json(const core::Snapshot& snapshot, const core::Layout& layout);
// Without a living server, or before its first worker: what the beacon says.
[[nodiscard]] nlohmann::ordered_json beacon_document(const core::BeaconData& beacon, bool alive, std::uint64_t now_ns);

// One line. Strings that are no UTF-8 cannot make it throw.
[[nodiscard]] std::string to_line(const nlohmann::ordered_json& document);

}  // namespace gradshm::tools
