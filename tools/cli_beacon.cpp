#include "cli_beacon.hpp"

#include "base/text.hpp"
#include "cli_text.hpp"

namespace gradshm::tools {

nlohmann::ordered_json beacon_json(const core::BeaconData& beacon, bool alive) {
  return {{"instance", core::escape(text_of(beacon.name))},
          {"alive", alive},
          {"pid", beacon.pid},
          {"uid", beacon.uid},
          {"incarnation", core::format_hex(beacon.incarnation)},
          {"started_unix_s", beacon.started_unix_s},
          {"progress_ns", beacon.progress_ns},
          {"closed_round", beacon.closed_round},
          {"members", beacon.members},
          {"member_ranks", ranks_of(beacon.member_ranks)},
          {"parameters", beacon.parameters},
          {"gradient_bytes", beacon.gradient_bytes},
          {"socket_path", core::escape(text_of(beacon.socket_path))}};
}

}  // namespace gradshm::tools
