// The read-only side of an instance that workers and observers share: layout, control, result, and reading them consistently.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "layout/layout.hpp"
#include "memory/control.hpp"
#include "memory/result.hpp"

namespace gradshm::core {

struct ResultInfo {
  std::uint64_t round = 0;
  std::uint64_t count = 0;
  double weight_sum = 0;
};

class InstanceView {
 public:
  // Takes the three descriptors as they come over the socket; checks everything. Throws Error(corrupt | incompatible).
  InstanceView(MemFd control, MemFd layout, MemFd result, std::uint64_t incarnation);

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] ControlHeader header() const;  // of the server that it is connected to now
  [[nodiscard]] const Control& control() const noexcept { return control_.view; }
  [[nodiscard]] const std::byte* result(std::size_t parameter) const noexcept {
    return result_.gradients + layout_.placements()[parameter].offset;
  }
  [[nodiscard]] std::uint64_t closed_round() const noexcept;

  // After a restart. adopt: checks the successor's objects, lays its control over the old one at the same address and keeps its result
  // aside; adopt_result: lays that over the old result, so that no pointer ever changes. Throw Error(corrupt | incompatible | system).
  void adopt(MemFd control, MemFd result, std::uint64_t incarnation);
  void adopt_result();
  // The successor does not take this worker back: a private control object in its place says what the successor said.
  void show_eviction(unsigned rank);
  [[nodiscard]] const MemFd& control_file() const noexcept { return control_.file; }
  [[nodiscard]] const MemFd& layout_file() const noexcept { return layout_file_; }
  void close_files() noexcept;  // in a forked child

  // ok or empty for a closed round; ok too where its record is no longer kept.
  Status round_status(std::uint64_t round) const noexcept;
  // not_closed, not_found (older than the records kept).
  Status record(std::uint64_t round, RoundRecord& ret_record) const noexcept;
  Status group_weight(std::uint64_t round, std::size_t group, double& ret_weight) const noexcept;
  // not_closed while no closed round's bytes are there (also between the sum and the close of the next round).
  Status result_info(std::size_t parameter, ResultInfo& ret_info) const noexcept;
  // Copies the parameter's bytes of one closed round. timeout: it changed under every try.
  Status read(std::size_t parameter, void* data, const Deadline& deadline, ResultInfo& ret_info) const noexcept;

  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;  // name or alias
  [[nodiscard]] std::optional<std::size_t> find_group(std::string_view name) const;

 private:
  // One try: info, and bytes where data is given.
  Status try_read(std::size_t parameter, void* data, ResultInfo& ret_info) const noexcept;

  [[nodiscard]] ControlHeader checked_header(const ControlObject& control, std::uint64_t incarnation) const;

  MemFd layout_file_;
  Layout layout_;
  ControlObject control_;
  mutable std::mutex header_mutex_;
  ControlHeader header_;  // a checked copy
  ResultObject result_;
  ResultObject next_result_;
};

}  // namespace gradshm::core
