#include "client/slot_view.hpp"

#include <bit>
#include <cstring>

#include "client/connection.hpp"
#include "protocol/atomics.hpp"
#include "protocol/seqlock.hpp"

namespace gradshm::core {
namespace {

// Word by word where it can be: the worker may store there meanwhile.
void copy_bytes_out(void* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t words = bytes / 8 * 8;
  copy_words_out(to, from, words);
  std::uint64_t tail = 0;  // slots end at a page, so the whole word is there
  if (bytes > words) copy_words_out(&tail, from + words, sizeof tail), std::memcpy(static_cast<std::byte*>(to) + words, &tail, bytes - words);
}

}  // namespace

SlotView::SlotView(const std::string& instance, const InstanceView& view, unsigned rank, std::size_t parameter, const Deadline& deadline)
    : view_(view), parameter_(parameter), shape_(slot_shape(view.layout())) {
  const Connection connection = connect_to(instance, deadline);
  if (connection.incarnation != view.header().object.incarnation)
    throw Error(Status::daemon_lost, "the server '" + instance + "' was restarted meanwhile: try again");
  ObserveSlot request;
  request.rank = rank, request.parameter = static_cast<std::uint32_t>(parameter);
  std::vector<UniqueFd> fds;
  const auto answer = ask<ObserveSlotOk>(connection, request, {}, deadline, 1, &fds);
  generation_ = answer.generation, pid_ = answer.pid;
  const MemFd file(std::move(fds[0]));
  check_slot(file, shape_);
  slot_ = Mapping(file, Mapping::Access::read_only, shape_.total, "slot");
}

bool SlotView::is_present(const CommitBlock& block) const noexcept {
  const std::uint64_t position = view_.layout().placements()[parameter_].position;
  // order: relaxed (both), checked by `committed` after the fence in read.
  const auto kind = static_cast<PresenceKind>(load_relaxed(block.presence));
  if (kind != PresenceKind::bits) return kind == PresenceKind::all;
  const auto* bits = reinterpret_cast<const std::uint64_t*>(&block + 1);
  return (load_relaxed(bits[position / 64]) >> (position % 64) & 1) != 0;
}

SlotCopy SlotView::read(void* data) const noexcept {
  const Placement& place = view_.layout().placements()[parameter_];
  const auto& block = *slot_.at<const CommitBlock>(shape_.blocks[place.bucket]);
  SlotCopy copy;
  copy.round = load_acquire(block.committed);  // order: acquire, pairs with WorkerWords::publish_bucket's store
  copy.present = is_present(block);
  copy.weight = std::bit_cast<double>(load_relaxed(block.weight_bits));  // order: relaxed, as the presence
  copy_bytes_out(data, slot_.data() + shape_.gradients + place.offset, place.bytes);
  fence_acquire();
  // order: relaxed, after the fence: bytes that were stored behind a look at a later closed_round come with it.
  const std::uint64_t after = load_relaxed(block.committed);
  const std::uint64_t closed = view_.closed_round();
  const bool changed = after != copy.round || copy.round == 0 || copy.round > closed + 1;
  copy.state = changed ? SlotState::writing : copy.round == closed + 1 ? SlotState::committed : SlotState::closed;
  if (after != copy.round) copy.round = after;
  return copy;
}

}  // namespace gradshm::core
