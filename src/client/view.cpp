#include "client/view.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>

#include "protocol/atomics.hpp"
#include "protocol/seqlock.hpp"

namespace gradshm::core {
namespace {

constexpr std::uint64_t kMaxSharedLayoutBytes = std::uint64_t{1} << 30;
constexpr int kTries = 1000, kQuickTries = 100;
constexpr long kReadPauseNs = 100'000;

void copy_out(void* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__SANITIZE_THREAD__) || defined(GRADSHM_ATOMICS_HEADER)
  const std::size_t words = bytes / 8 * 8;  // TSan does not know fences, a model must see each load: word-wise atomic loads are no race
  copy_words_out(to, from, words);
  std::memcpy(static_cast<std::byte*>(to) + words, from + words, bytes - words);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace

InstanceView::InstanceView(MemFd control, MemFd layout, MemFd result, std::uint64_t incarnation)
    : layout_file_(std::move(layout)),
      layout_(decode_layout(read_sealed(layout_file_, kMaxSharedLayoutBytes, "the layout object"))),
      control_(open_control(std::move(control))),
      header_(checked_header(control_, incarnation)),
      result_(open_result(std::move(result), layout_, incarnation)) {}

ControlHeader InstanceView::checked_header(const ControlObject& control, std::uint64_t incarnation) const {
  ControlHeader header;
  std::memcpy(&header, control.view.header, sizeof header);
  header.instance[sizeof header.instance - 1] = '\0';
  if (header.object.incarnation != incarnation || header.object.fingerprint != layout_.layout_fingerprint() ||
      header.buckets != layout_.buckets().size() || header.groups != layout_.groups().size())
    throw Error(Status::corrupt, "the control object and the layout of this server do not belong together");
  return header;
}

ControlHeader InstanceView::header() const {
  const std::lock_guard lock(header_mutex_);
  return header_;
}

void InstanceView::adopt(MemFd control, MemFd result, std::uint64_t incarnation) {
  ControlObject next = open_control(std::move(control));
  const ControlHeader header = checked_header(next, incarnation);
  next_result_ = open_result(std::move(result), layout_, incarnation);
  control_.mapping.replace(next.file, "control object");
  control_.file = std::move(next.file);
  const std::lock_guard lock(header_mutex_);
  header_ = header;
}

void InstanceView::adopt_result() {
  result_.mapping.replace(next_result_.file, "result object", true);
  result_.file = std::move(next_result_.file);
  next_result_ = {};
}

void InstanceView::show_eviction(unsigned rank) {
  std::string content(control_.mapping.size(), '\0');
  std::memcpy(content.data(), control_.mapping.data(), content.size());
  auto* entry = reinterpret_cast<MemberEntry*>(content.data() + header().members_offset) + rank;
  entry->word = 0;  // no generation: everybody else's
  const MemFd file = MemFd::sealed_copy("gradshm-evicted", content);
  control_.mapping.replace(file, "control object");
}

void InstanceView::close_files() noexcept { layout_file_ = {}, control_.file = {}, result_.file = {}, next_result_.file = {}; }

std::uint64_t InstanceView::closed_round() const noexcept {
  return load_seq_cst(control_.view.words->closed_round);  // order: seq_cst, pairs with Publisher::close
}

Status InstanceView::round_status(std::uint64_t round) const noexcept {
  const RoundRecord& shared = control_.view.records[round % kRecords];
  struct { std::uint64_t round; std::int32_t status; std::uint32_t members; } head{};
  static_assert(offsetof(RoundRecord, round) == 8 && offsetof(RoundRecord, status) == 16);
  for (int i = 0; i < kTries; ++i) {
    if (!core::try_read(shared.sequence, &head, reinterpret_cast<const std::byte*>(&shared) + 8, sizeof head)) continue;
    return head.round == round && head.status == GRADSHM_EMPTY ? Status::empty : Status::ok;
  }
  return Status::ok;
}

Status InstanceView::record(std::uint64_t round, RoundRecord& ret_record) const noexcept {
  if (round == 0 || round > closed_round()) return Status::not_closed;
  RoundRecord record;
  for (int i = 0; i < kTries; ++i)
    if (try_read_record(control_.view.records[round % kRecords], record)) {
      if (record.round != round) return Status::not_found;
      ret_record = record;
      return Status::ok;
    }
  return Status::not_found;
}

Status InstanceView::group_weight(std::uint64_t round, std::size_t group, double& ret_weight) const noexcept {
  if (round == 0 || round > closed_round()) return Status::not_closed;
  const RoundRecord& shared = control_.view.records[round % kRecords];
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = load_acquire(shared.sequence);  // order: acquire, pairs with Publisher::record's release
    const std::uint64_t whose = load_relaxed(shared.round);      // order: relaxed (both), the fence below pairs with the writer's
    double weight = 0;
    copy_words_out(&weight, &control_.view.group_weights[round % kRecords * layout_.groups().size() + group], sizeof weight);
    fence_acquire();
    if (before % 2 != 0 || load_relaxed(shared.sequence) != before) continue;
    if (whose != round) return Status::not_found;
    ret_weight = weight;
    return Status::ok;
  }
  return Status::not_found;
}

Status InstanceView::try_read(std::size_t parameter, void* data, ResultInfo& ret_info) const noexcept {
  const Placement& place = layout_.placements()[parameter];
  const BucketResult& bucket = result_.buckets[place.bucket];
  // closed_round first: before the close a bucket may be summed again under the same number.
  const std::uint64_t closed = closed_round();
  const std::uint64_t round = load_relaxed(bucket.round);  // order: relaxed, what is not newer than `closed` came with that load
  if (round == 0 || round > closed) return Status::not_closed;
  ResultInfo info{round, 0, 0};
  const bool uniform = load_relaxed(bucket.uniform) != 0;  // order: relaxed (all below), checked by `writing` after the fence
  const ParameterResult& own = result_.parameters[parameter];
  info.count = uniform ? load_relaxed(bucket.count) : load_relaxed(own.count);
  info.weight_sum = std::bit_cast<double>(load_relaxed(uniform ? bucket.weight_sum_bits : own.weight_sum_bits));
  if (data != nullptr) copy_out(data, result(parameter), place.bytes);
  fence_acquire();
  // order: relaxed, the fence pairs with Reduction::reduce's store fence: bytes of a later round come with its `writing`.
  if (load_relaxed(bucket.writing) != round) return Status::not_closed;
  ret_info = info;
  return Status::ok;
}

Status InstanceView::result_info(std::size_t parameter, ResultInfo& ret_info) const noexcept { return try_read(parameter, nullptr, ret_info); }

Status InstanceView::read(std::size_t parameter, void* data, const Deadline& deadline, ResultInfo& ret_info) const noexcept {
  int tries = 0;
  while (true) {
    if (const Status status = try_read(parameter, data, ret_info); status != Status::not_closed) return status;
    if (deadline.passed()) return closed_round() == 0 ? Status::not_closed : Status::timeout;
    // A sum of the bucket takes microseconds to milliseconds; the wait for the rest of its round may take much longer.
    const timespec pause{0, ++tries < kQuickTries ? 0 : kReadPauseNs};
    if (pause.tv_nsec == 0) cpu_relax();
    else nanosleep(&pause, nullptr);
  }
}

std::optional<std::size_t> InstanceView::find(std::string_view name) const {
  // Every alias leads to the id of the bytewise smallest one only through the table, so a name is looked up there.
  const std::size_t index = layout_.manifest().find_name(name);
  return index < layout_.parameters().size() ? std::optional(index) : std::nullopt;
}

std::optional<std::size_t> InstanceView::find_group(std::string_view name) const {
  const auto found = std::find(layout_.groups().begin(), layout_.groups().end(), name);
  return found == layout_.groups().end() ? std::nullopt : std::optional<std::size_t>(found - layout_.groups().begin());
}

}  // namespace gradshm::core
