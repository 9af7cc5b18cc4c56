// A control object in which any byte is wrong: what the library says of it.
#include "client/handle.hpp"
#include "client/snapshot.hpp"
#include "client/view.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "server/workers.hpp"

namespace gradshm::test {
namespace {

using core::MemFd;

MemFd copy_of(const MemFd& file) { return MemFd(core::UniqueFd(fcntl(file.fd(), F_DUPFD_CLOEXEC, 0))); }

// A control object of our own with the same content, which we may go on damaging.
struct Forgery {
  MemFd file;
  core::Mapping mapping;
  explicit Forgery(const MemFd& original, std::int64_t more = 0) {
    const auto bytes = static_cast<std::uint64_t>(static_cast<std::int64_t>(original.size()) + more);
    file = MemFd::create("forgery", bytes);
    if (bytes > 0) mapping = core::Mapping(file, core::Mapping::Access::read_write, bytes, "forgery");
    std::vector<std::byte> content(bytes);
    REQUIRE(pread(original.fd(), content.data(), std::min(bytes, original.size()), 0) == static_cast<ssize_t>(std::min(bytes, original.size())));
    if (bytes > 0) std::memcpy(mapping.data(), content.data(), bytes);
    file.seal(core::kSealShrink | core::kSealGrow | core::kSealFutureWrite | core::kSealSeal);
  }
};

struct Victim {
  Team team{floats(2), summing(2, kOneEach)};
  std::unique_ptr<core::Handle> honest = core::Handle::observe(team.server.name(), core::Deadline::after(kLongNs));
  MemFd result{core::UniqueFd(open(("/proc/self/fd/" + std::to_string(descriptor_of("gradshm-result"))).c_str(), O_RDONLY | O_CLOEXEC))};
  const core::InstanceView& view() const { return honest->view(); }

  static int descriptor_of(const std::string& name) {
    for (int fd = 3; fd < 1024; ++fd) {
      char target[256] = {};
      if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target - 1) > 0 && std::string(target).find(name) != std::string::npos) return fd;
    }
    return -1;
  }
};

// Everything that a reader does with a control object. True: it was accepted.
bool look_at_all(const Victim& victim, const MemFd& control) {
  try {
    const core::InstanceView view(copy_of(control), copy_of(victim.view().layout_file()), copy_of(victim.result), victim.view().header().object.incarnation);
    core::RoundRecord record;
    double weight = 0;
    core::ResultInfo info;
    float copy[4];
    for (std::uint64_t round = 0; round < 5; ++round) {
      static_cast<void>(view.round_status(round));
      static_cast<void>(view.record(round, record));
      static_cast<void>(view.group_weight(round, 0, weight));
    }
    static_cast<void>(view.result_info(0, info));
    static_cast<void>(view.read(1, copy, core::Deadline::after(0), info));
    core::Snapshot snapshot;
    core::take_events(view.control(), snapshot);
    return true;
  } catch (const core::Error& error) {
    REQUIRE((error.status() == core::Status::corrupt || error.status() == core::Status::incompatible));
    REQUIRE(std::strlen(error.what()) > 20);
    return false;
  }
}

}  // namespace

TEST_CASE("Fast-DDS#6501: any byte of the control object flipped gives a typed error or a harmless reading, never a crash or a hang") {
  Victim victim;
  for (int i = 0; i < 3; ++i) check_exact_round({&victim.team[0], &victim.team[1]});
  Forgery forged(victim.view().control_file());
  REQUIRE(look_at_all(victim, forged.file));
  std::size_t refused = 0, accepted = 0;
  const std::uint64_t bytes = forged.mapping.size();
  // Every byte of header and words, then every 13th of the long tables: as many of each field's bytes in turn.
  for (std::uint64_t at = 0; at < bytes; at += at < 2048 ? 1 : 13) {
    forged.mapping.data()[at] ^= std::byte{0xff};
    (look_at_all(victim, forged.file) ? accepted : refused) += 1;
    forged.mapping.data()[at] ^= std::byte{0xff};
  }
  CHECK(refused >= sizeof(core::ControlHeader));
  CHECK(accepted > 0);
  CHECK(look_at_all(victim, forged.file));
  check_exact_round({&victim.team[0], &victim.team[1]});
}

TEST_CASE("Fast-DDS#6501: a control object that is cut or extended is refused") {
  Victim victim;
  for (const std::int64_t more : {-4096, -8, -1, 1, 8, 4096}) CHECK_FALSE(look_at_all(victim, Forgery(victim.view().control_file(), more).file));
  const auto all = -static_cast<std::int64_t>(victim.view().control_file().size());
  CHECK_FALSE(look_at_all(victim, Forgery(victim.view().control_file(), all).file));
  CHECK_FALSE(look_at_all(victim, Forgery(victim.view().control_file(), all + 100).file));
}

}  // namespace gradshm::test
