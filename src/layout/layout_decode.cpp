// Every byte that is read here may be anything.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/checked.hpp"
#include "layout/hash.hpp"
#include "layout/layout.hpp"
#include "layout/layout_format.hpp"
#include "layout/names.hpp"

namespace gradshm::core {
namespace {

[[noreturn]] void corrupt(const std::string& fault) {
  throw Error(Status::corrupt, "the layout object is corrupt: " + fault + "; start the server anew");
}

// Hands out the bytes from front to back, and never more than there are.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view take(std::size_t bytes, const char* what) {
    if (bytes > rest_.size()) corrupt(std::string(what) + " reaches beyond the end");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  template <class T>
  T get(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string text(const char* what) { return std::string(take(get<std::uint32_t>(what), what)); }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

LayoutHeader check_header(std::string_view bytes) {
  if (bytes.size() < sizeof(LayoutHeader) + kChecksumBytes) corrupt("it has only " + plural(bytes.size(), "byte"));
  const auto header = Reader(bytes).get<LayoutHeader>("the header");
  if (header.magic != kLayoutMagic) corrupt("it does not begin with the magic number of a layout");
  if (header.version != kLayoutVersion) {
    throw Error(Status::incompatible, "the layout object has version " + std::to_string(header.version) + ", this program reads version " +
                                          std::to_string(kLayoutVersion) + "; use the same gradshm on both sides");
  }
  if (header.total_bytes != bytes.size()) {
    corrupt("it says that it has " + plural(header.total_bytes, "byte") + " and has " + format_count(bytes.size()));
  }
  const auto checksum = Reader(bytes.substr(bytes.size() - kChecksumBytes)).get<std::uint64_t>("the checksum");
  if (checksum != hash_bytes(bytes.substr(0, bytes.size() - kChecksumBytes))) corrupt("the checksum is wrong");
  return header;
}

// So that what is reserved for `count` records is bounded by the bytes that are there.
void check_count(std::uint64_t count, std::size_t record_bytes, std::uint64_t limit, const Reader& reader, const char* what) {
  if (count > limit || count > reader.left() / record_bytes) corrupt(format_count(count) + " " + what + " cannot be in it");
}

class Decoder {
 public:
  explicit Decoder(std::string_view bytes)
      : header_(check_header(bytes)),
        reader_(bytes.substr(sizeof(LayoutHeader), bytes.size() - sizeof(LayoutHeader) - kChecksumBytes)) {}

  Layout decode() {
    read_labels();
    read_parameters();
    read_buckets();
    if (header_.reserved != 0 || reader_.left() != 0) corrupt("it has bytes that belong to nothing");
    check_buckets();
    if (fingerprint(manifest_) != header_.fingerprint) corrupt("the fingerprint is not that of its parameters");
    std::vector<std::string> groups(labels_.begin(), labels_.begin() + header_.groups);
    return {std::move(manifest_), std::move(placements_), std::move(buckets_),
            std::move(order_),    std::move(groups),      header_.gradient_bytes};
  }

 private:
  void read_labels() {
    check_count(header_.labels, sizeof(std::uint32_t), kMaxGroups + kMaxParameters, reader_, "group names");
    if (header_.groups == 0 || header_.groups > kMaxGroups || header_.groups > header_.labels) {
      corrupt(format_count(header_.groups) + " groups cannot be in it");
    }
    std::unordered_set<std::string> known;
    for (std::uint32_t i = 0; i < header_.labels; ++i) {
      labels_.push_back(reader_.text("a group name"));
      const std::string fault = labels_.back().empty() ? "" : fault_of_name(labels_.back());
      if (!fault.empty()) corrupt("group " + in_quotes(labels_.back()) + " " + fault);
      if (!known.insert(labels_.back()).second) corrupt("group " + in_quotes(labels_.back()) + " is there twice");
    }
  }

  void read_parameters() {
    check_count(header_.parameters, sizeof(ParameterRecord), kMaxParameters, reader_, "parameters");
    if (header_.parameters == 0) corrupt("it has no parameters");
    placements_.reserve(header_.parameters);
    for (std::uint32_t i = 0; i < header_.parameters; ++i) read_parameter();
  }

  void read_parameter() {
    const auto record = reader_.get<ParameterRecord>("a parameter");
    if (record.dims > kMaxDims || record.label >= labels_.size()) corrupt("a parameter has impossible dimensions or group");
    if (std::any_of(std::begin(record.reserved), std::end(record.reserved), [](auto byte) { return byte != 0; })) {
      corrupt("a reserved field is not 0");
    }
    Parameter parameter;
    parameter.dtype = static_cast<DType>(record.dtype);  // checked by add, as is order
    parameter.order = static_cast<Order>(record.order);
    parameter.group = labels_[record.label];
    for (std::uint8_t i = 0; i < record.dims; ++i) parameter.shape.push_back(reader_.get<std::int64_t>("a shape"));
    parameter.name = reader_.take(record.name_bytes, "a name");
    for (std::uint8_t i = 0; i < record.aliases; ++i) parameter.aliases.push_back(reader_.text("an alias"));
    add(record, std::move(parameter));
  }

  void add(const ParameterRecord& record, Parameter parameter) {
    try {
      manifest_.add(std::move(parameter));
    } catch (const Error& error) {
      corrupt(error.what());
    }
    const Parameter& added = manifest_.parameters().back();
    if (added.id != record.id) corrupt("the id of parameter " + in_quotes(added.name) + " is not the hash of its name");
    if (static_cast<std::uint8_t>(added.order) != record.order) {
      corrupt("the order of parameter " + in_quotes(added.name) + " is impossible");
    }
    const std::uint64_t bytes = added.numel * element_bytes(added.dtype);
    placements_.push_back({record.offset, bytes, record.bucket, 0, record.position});
  }

  void read_buckets() {
    check_count(header_.buckets, sizeof(BucketRecord), header_.parameters, reader_, "buckets");
    buckets_.reserve(header_.buckets);
    std::uint64_t first = 0;
    for (std::uint32_t i = 0; i < header_.buckets; ++i) {
      const auto record = reader_.get<BucketRecord>("a bucket");
      if (record.parameters == 0 || record.group >= header_.groups) {
        corrupt("bucket " + std::to_string(i) + " has no parameter or no group");
      }
      buckets_.push_back({static_cast<std::uint32_t>(first), record.parameters, record.group, DType::f32, record.offset, record.bytes});
      first += record.parameters;
      if (first > header_.parameters) corrupt("the buckets have more parameters than there are");
    }
    if (first != header_.parameters) corrupt("the buckets have fewer parameters than there are");
  }

  void fill_order() {
    constexpr std::uint32_t kNone = UINT32_MAX;
    order_.assign(header_.parameters, kNone);
    for (std::uint32_t i = 0; i < header_.parameters; ++i) {
      Placement& placement = placements_[i];
      if (placement.bucket >= buckets_.size() || placement.position >= buckets_[placement.bucket].parameters) {
        corrupt("parameter " + in_quotes(manifest_.parameters()[i].name) + " is in no bucket");
      }
      const Bucket& bucket = buckets_[placement.bucket];
      placement.group = bucket.group;
      std::uint32_t& entry = order_[bucket.first + placement.position];
      if (entry != kNone) corrupt("parameter " + in_quotes(manifest_.parameters()[i].name) + " is where another one is");
      entry = i;
    }
  }

  // No overlap, all aligned, and each bucket ends with its last parameter.
  void check_buckets() {
    fill_order();
    std::uint64_t end = 0;
    for (Bucket& bucket : buckets_) {
      if (bucket.offset != align_up(end, kBucketAlignment)) corrupt("a bucket does not follow on the one before it");
      bucket.dtype = manifest_.parameters()[order_[bucket.first]].dtype;
      end = bucket.offset;
      for (std::uint32_t i = 0; i < bucket.parameters; ++i) end = check_place(order_[bucket.first + i], bucket.dtype, end);
      if (bucket.bytes != end - bucket.offset) corrupt("a bucket does not end with its last parameter");
    }
    if (header_.gradient_bytes != align_up(end, kBucketAlignment)) corrupt("the gradients do not end with the last bucket");
  }

  std::uint64_t check_place(std::uint32_t index, DType dtype, std::uint64_t end) const {
    const Placement& placement = placements_[index];
    const std::string& name = manifest_.parameters()[index].name;
    if (manifest_.parameters()[index].dtype != dtype) corrupt("parameter " + in_quotes(name) + " has not the dtype of its bucket");
    if (placement.offset != align_up(end, kParameterAlignment)) {
      corrupt("parameter " + in_quotes(name) + " does not follow on the one before it");
    }
    const std::uint64_t next = placement.offset + placement.bytes;  // both at most 2^62
    if (next > kMaxLayoutBytes) corrupt("it has more than 2^62 bytes of gradients");
    return next;
  }

  LayoutHeader header_;
  Reader reader_;
  std::vector<std::string> labels_;
  Manifest manifest_;
  std::vector<Placement> placements_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> order_;
};

}  // namespace

Layout decode_layout(std::string_view bytes) { return Decoder(bytes).decode(); }

}  // namespace gradshm::core
