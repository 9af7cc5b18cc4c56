#include "cli_beacon.hpp"

#include <unistd.h>

#include <optional>

#include "base/text.hpp"
#include "cli_text.hpp"

namespace gradshm::tools {

namespace {

// One that lives in another directory, else one that was killed there.
std::optional<core::BeaconData> beacon_elsewhere(const std::string& instance) {
  std::optional<core::BeaconData> found;
  for (const core::BeaconData& other : core::list_beacons(geteuid()))
    if (text_of(other.name) == instance && (!found || core::is_alive(other))) found = other;
  return found;
}

}  // namespace

core::Error explain_absence(const std::string& instance, const core::Error& error) {
  auto beacon = core::read_beacon(geteuid(), instance);
  const bool is_ours = beacon.has_value();
  if (!is_ours) beacon = beacon_elsewhere(instance);
  if (!beacon) return error;
  const bool lives = core::is_alive(*beacon);
  const core::Status status = is_ours && !lives && error.status() == core::Status::no_server ? core::Status::daemon_lost : error.status();
  return {status, std::string(error.what()) + "\n(pid " + std::to_string(beacon->pid) + (lives ? " runs under that name" : " ran under that name and was killed") +
                      ", with its socket at " + core::escape(text_of(beacon->socket_path)) + (is_ours ? ")" : ": is GRADSHM_DIR the same?)")};
}

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
