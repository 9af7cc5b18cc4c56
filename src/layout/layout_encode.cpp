#include <cstring>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "layout/hash.hpp"
#include "layout/layout.hpp"
#include "layout/layout_format.hpp"

namespace gradshm::core {
namespace {

template <class T>
void put(std::string& bytes, const T& value) {
  static_assert(std::has_unique_object_representations_v<T>, "padding would carry garbage into the checksum");
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint32_t>(text.size()));
  bytes.append(text);
}

struct Labels {
  std::vector<std::string_view> names;
  std::unordered_map<std::string_view, std::uint32_t> index;

  std::uint32_t add(std::string_view name) {
    const auto [entry, is_new] = index.emplace(name, static_cast<std::uint32_t>(names.size()));
    if (is_new) names.push_back(name);
    return entry->second;
  }
};

Labels labels_of(const Layout& layout) {
  Labels labels;
  for (const std::string& group : layout.groups()) labels.add(group);
  for (const Parameter& parameter : layout.parameters()) labels.add(parameter.group);
  return labels;
}

void put_parameter(std::string& bytes, const Parameter& parameter, const Placement& placement, std::uint32_t label) {
  ParameterRecord record{};
  record.id = parameter.id;
  record.offset = placement.offset;
  record.bucket = placement.bucket;
  record.position = placement.position;
  record.label = label;
  record.name_bytes = static_cast<std::uint16_t>(parameter.name.size());
  record.aliases = static_cast<std::uint8_t>(parameter.aliases.size());
  record.dims = static_cast<std::uint8_t>(parameter.shape.size());
  record.dtype = static_cast<std::uint8_t>(parameter.dtype);
  record.order = static_cast<std::uint8_t>(parameter.order);
  put(bytes, record);
  for (const std::int64_t dim : parameter.shape) put(bytes, dim);
  bytes.append(parameter.name);
  for (const std::string& alias : parameter.aliases) put_text(bytes, alias);
}

LayoutHeader header_of(const Layout& layout, const Labels& labels) {
  LayoutHeader header{};
  header.magic = kLayoutMagic;
  header.version = kLayoutVersion;
  header.groups = static_cast<std::uint32_t>(layout.groups().size());
  header.fingerprint = layout.layout_fingerprint();
  header.gradient_bytes = layout.gradient_bytes();
  header.labels = static_cast<std::uint32_t>(labels.names.size());
  header.parameters = static_cast<std::uint32_t>(layout.parameters().size());
  header.buckets = static_cast<std::uint32_t>(layout.buckets().size());
  return header;
}

}  // namespace

std::string encode_layout(const Layout& layout) {
  Labels labels = labels_of(layout);
  LayoutHeader header = header_of(layout, labels);
  std::string bytes;
  put(bytes, header);
  for (const std::string_view label : labels.names) put_text(bytes, label);
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const Parameter& parameter = layout.parameters()[i];
    put_parameter(bytes, parameter, layout.placements()[i], labels.index.at(parameter.group));
  }
  for (const Bucket& bucket : layout.buckets()) put(bytes, BucketRecord{bucket.offset, bucket.bytes, bucket.parameters, bucket.group});
  header.total_bytes = bytes.size() + kChecksumBytes;
  std::memcpy(bytes.data(), &header, sizeof(header));
  put(bytes, hash_bytes(bytes));
  return bytes;
}

}  // namespace gradshm::core
