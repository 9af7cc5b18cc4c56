#include <cstddef>
#include <cstring>
#include <string>

#include "base/checked.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "layout/hash.hpp"
#include "memory/beacon.hpp"
#include "memory/control.hpp"
#include "memory/result.hpp"
#include "memory/slot.hpp"

namespace gradshm::core {
namespace {

// Sizes and offsets of everything two processes read: a build that lays a struct out differently gets another number (FNV-1a).
constexpr std::uint64_t compute_abi_hash() {
  constexpr std::uint64_t kFacts[] = {
      sizeof(ObjectHeader), offsetof(ObjectHeader, abi_hash), offsetof(ObjectHeader, checksum),
      sizeof(ControlHeader), offsetof(ControlHeader, op), offsetof(ControlHeader, rejoin_timeout_ns), offsetof(ControlHeader, words_offset), offsetof(ControlHeader, instance),
      sizeof(ControlWords), offsetof(ControlWords, wake_seq), offsetof(ControlWords, idle), offsetof(ControlWords, state),
      offsetof(ControlWords, progress_ns), offsetof(ControlWords, events), offsetof(ControlWords, bytes_reduced),
      sizeof(MemberEntry), offsetof(MemberEntry, first_round), offsetof(MemberEntry, pid), offsetof(MemberEntry, label),
      sizeof(BucketProgress), offsetof(BucketProgress, arrived),
      sizeof(RoundRecord), offsetof(RoundRecord, members), offsetof(RoundRecord, sum_of_squares), offsetof(RoundRecord, nonfinite_by_rank),
      sizeof(Event), offsetof(Event, kind), offsetof(Event, text),
      sizeof(ResultHeader), offsetof(ResultHeader, gradients_offset),
      sizeof(BucketResult), offsetof(BucketResult, round), offsetof(BucketResult, contributors), offsetof(BucketResult, uniform),
      sizeof(ParameterResult), offsetof(ParameterResult, count),
      sizeof(SlotHeader), sizeof(SlotWords), sizeof(CommitBlock), offsetof(CommitBlock, weight_bits), offsetof(CommitBlock, presence),
      sizeof(BeaconData), offsetof(BeaconData, incarnation), offsetof(BeaconData, closed_round), sizeof(ListedWorker), offsetof(BeaconData, listed), offsetof(BeaconData, socket_path),
      kRecords, kEvents, kMaxWorkers, kLabelBytes, kLineBytes, kPageBytes, kParameterAlignment};
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint64_t fact : kFacts) hash = (hash ^ fact) * 0x100000001b3;
  return hash;
}

ObjectHeader object_header(ObjectKind kind, std::uint64_t bytes, std::uint64_t incarnation, std::uint64_t fingerprint) {
  return {static_cast<std::uint64_t>(kind), kAbiMajor, kAbiMinor, abi_hash(), bytes, incarnation, fingerprint, 0};
}

constexpr int kReadOnlySeals = kSealShrink | kSealGrow | kSealFutureWrite | kSealSeal;

void check_seals(const MemFd& file, int needed, const char* what) {
  if (const int seals = file.seals(); seals < 0 || (seals & needed) != needed)
    throw Error(Status::corrupt, std::string(what) + " lacks its memfd seals: this is no gradshm server's memory");
}

std::string version_text(std::uint32_t major, std::uint32_t minor, std::uint64_t hash) {
  return std::to_string(major) + "." + std::to_string(minor) + " (hash " + format_hex(hash) + ")";
}

}  // namespace

std::uint64_t abi_hash() noexcept { return compute_abi_hash(); }
std::uint64_t checksum_of(const void* data, std::size_t bytes) noexcept { return hash_bytes({static_cast<const char*>(data), bytes}); }

void check_object(const ObjectHeader& header, ObjectKind kind, std::uint64_t file_bytes, const char* what) {
  if (header.magic != static_cast<std::uint64_t>(kind))
    throw Error(Status::corrupt, std::string("the ") + what + " object is damaged, or not gradshm's (bad magic or checksum)");
  if (header.abi_major != kAbiMajor || header.abi_hash != abi_hash())
    throw Error(Status::incompatible, std::string("the ") + what + " object has ABI " +
                                          version_text(header.abi_major, header.abi_minor, header.abi_hash) + ", this library has " +
                                          version_text(kAbiMajor, kAbiMinor, abi_hash()) + ": use one version of gradshm on both sides");
  if (header.total_bytes != file_bytes)
    throw Error(Status::corrupt, std::string("the ") + what + " object says " + format_count(header.total_bytes) + " bytes, its file has " +
                                     format_count(file_bytes));
}

ControlShape control_shape(std::uint64_t buckets, std::uint64_t groups) {
  ControlShape shape;
  shape.words = align_up(sizeof(ControlHeader), kLineBytes);
  shape.members = shape.words + sizeof(ControlWords);
  shape.buckets = shape.members + kMaxWorkers * sizeof(MemberEntry);
  shape.records = align_up(shape.buckets + buckets * sizeof(BucketProgress), kLineBytes);
  shape.weights = align_up(shape.records + kRecords * sizeof(RoundRecord), kLineBytes);
  shape.events = align_up(shape.weights + kRecords * groups * sizeof(double), kLineBytes);
  shape.total = align_up(shape.events + kEvents * sizeof(Event), kPageBytes);
  return shape;
}

Control control_view(std::byte* data, const ControlShape& shape) noexcept {
  return {reinterpret_cast<const ControlHeader*>(data), reinterpret_cast<ControlWords*>(data + shape.words),
          reinterpret_cast<MemberEntry*>(data + shape.members), reinterpret_cast<BucketProgress*>(data + shape.buckets),
          reinterpret_cast<RoundRecord*>(data + shape.records), reinterpret_cast<double*>(data + shape.weights),
          reinterpret_cast<Event*>(data + shape.events)};
}

ControlObject create_control(ControlHeader header, std::uint64_t incarnation, std::uint64_t fingerprint) {
  const ControlShape shape = control_shape(header.buckets, header.groups);
  header.object = object_header(ObjectKind::control, shape.total, incarnation, fingerprint);
  header.words_offset = shape.words, header.members_offset = shape.members, header.buckets_offset = shape.buckets;
  header.records_offset = shape.records, header.weights_offset = shape.weights, header.events_offset = shape.events;
  finish_header(header);
  ControlObject control{MemFd::create("gradshm-control", shape.total), {}, {}};
  control.file.allocate();
  control.mapping = Mapping(control.file, Mapping::Access::read_write, shape.total, "control object");
  control.file.seal(kReadOnlySeals);
  std::memcpy(control.mapping.data(), &header, sizeof header);
  control.view = control_view(control.mapping.data(), shape);
  return control;
}

ControlObject open_control(MemFd file) {
  check_seals(file, kReadOnlySeals, "the control object");
  const std::uint64_t bytes = file.size();
  if (bytes < sizeof(ControlHeader)) throw Error(Status::corrupt, "the control object is too short for its header");
  ControlObject control{std::move(file), {}, {}};
  control.mapping = Mapping(control.file, Mapping::Access::read_only, bytes, "control object");
  const auto header = checked_header<ControlHeader>(control.mapping.data(), bytes, ObjectKind::control, "control");
  const ControlShape shape = control_shape(header.buckets, header.groups);
  if (header.buckets > kMaxParameters || header.groups > kMaxGroups || shape.total != bytes)
    throw Error(Status::corrupt, "the control object's counts do not fit its size");
  control.view = control_view(control.mapping.data(), shape);
  return control;
}

namespace {
ResultHeader result_header(const Layout& layout, std::uint64_t incarnation) {
  ResultHeader header;
  header.buckets = static_cast<std::uint32_t>(layout.buckets().size());
  header.parameters = static_cast<std::uint32_t>(layout.parameters().size());
  header.buckets_offset = align_up(sizeof(ResultHeader), kLineBytes);
  header.parameters_offset = header.buckets_offset + header.buckets * sizeof(BucketResult);
  header.gradients_offset = align_up(header.parameters_offset + header.parameters * sizeof(ParameterResult), kPageBytes);
  header.gradient_bytes = layout.gradient_bytes();
  const std::uint64_t total = align_up(header.gradients_offset + header.gradient_bytes, kPageBytes);
  header.object = object_header(ObjectKind::result, total, incarnation, layout.layout_fingerprint());
  finish_header(header);
  return header;
}

void point_into(ResultObject& result, const ResultHeader& header) {
  result.buckets = result.mapping.at<BucketResult>(header.buckets_offset);
  result.parameters = result.mapping.at<ParameterResult>(header.parameters_offset);
  result.gradients = result.mapping.at<std::byte>(header.gradients_offset);
}
}  // namespace

std::uint64_t result_bytes(const Layout& layout) { return result_header(layout, 0).object.total_bytes; }

ResultObject create_result(const Layout& layout, std::uint64_t incarnation) {
  const ResultHeader header = result_header(layout, incarnation);
  ResultObject result;
  result.file = MemFd::create("gradshm-result", header.object.total_bytes);
  result.file.allocate();
  result.mapping = Mapping(result.file, Mapping::Access::read_write, header.object.total_bytes, "result object", true);
  result.file.seal(kReadOnlySeals);
  std::memcpy(result.mapping.data(), &header, sizeof header);
  point_into(result, header);
  return result;
}

ResultObject open_result(MemFd file, const Layout& layout, std::uint64_t incarnation) {
  check_seals(file, kReadOnlySeals, "the result object");
  const ResultHeader wanted = result_header(layout, incarnation);
  const std::uint64_t bytes = file.size();
  if (bytes < sizeof(ResultHeader)) throw Error(Status::corrupt, "the result object is too short for its header");
  ResultObject result;
  result.file = std::move(file);
  result.mapping = Mapping(result.file, Mapping::Access::read_only, bytes, "result object");
  const auto header = checked_header<ResultHeader>(result.mapping.data(), bytes, ObjectKind::result, "result");
  if (header.object.checksum != wanted.object.checksum)
    throw Error(Status::corrupt, "the result object belongs to another server incarnation or layout");
  point_into(result, wanted);
  return result;
}

SlotShape slot_shape(const Layout& layout) {
  SlotShape shape;
  shape.words = align_up(sizeof(SlotHeader), kLineBytes);
  std::uint64_t offset = shape.words + sizeof(SlotWords);
  for (const Bucket& bucket : layout.buckets()) {
    shape.blocks.push_back(offset);
    offset = align_up(offset + sizeof(CommitBlock) + 8 * presence_words(bucket.parameters), kLineBytes);
  }
  shape.gradients = align_up(offset, kPageBytes);
  shape.total = align_up(shape.gradients + layout.gradient_bytes(), kPageBytes);
  return shape;
}

MemFd create_slot(const SlotShape& shape, std::uint64_t incarnation, std::uint64_t fingerprint, std::uint64_t generation, std::uint64_t rank) {
  SlotHeader header{object_header(ObjectKind::slot, shape.total, incarnation, fingerprint), generation, rank};
  finish_header(header);
  MemFd file = MemFd::create("gradshm-slot", shape.total);
  if (pwrite(file.fd(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) throw system_error("write of a slot header", errno);
  file.seal(kSealShrink | kSealGrow | kSealSeal);
  return file;
}

void check_slot(const MemFd& file, const SlotShape& shape) {
  check_seals(file, kSealShrink | kSealGrow | kSealSeal, "the slot");
  if (file.size() != shape.total) throw Error(Status::corrupt, "the slot has another size than it was made with");
  if (file.allocated_bytes() < shape.total)
    throw Error(Status::no_space, "the slot's pages are not allocated: " + format_count(file.allocated_bytes()) + " of " +
                                      format_count(shape.total) + " bytes");
}

}  // namespace gradshm::core
