#include "layout/layout.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "layout/names.hpp"

namespace gradshm::core {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Status::bad_layout, sentence); }

// The group of a name by its longest matching prefix: one look-up for each length that occurs among the prefixes.
class PrefixTable {
 public:
  explicit PrefixTable(const std::vector<std::string>& prefixes) {
    for (const std::string& prefix : prefixes) {
      const std::string fault = fault_of_name(prefix);
      if (!fault.empty()) refuse("group prefix " + in_quotes(prefix) + " " + fault);
      by_length_[prefix.size()].emplace(prefix, &prefix);
    }
  }

  // nullptr if none matches.
  [[nodiscard]] const std::string* find(std::string_view name) const {
    for (const auto& [length, prefixes] : by_length_) {
      const auto found = length <= name.size() ? prefixes.find(name.substr(0, length)) : prefixes.end();
      if (found != prefixes.end()) return found->second;
    }
    return nullptr;
  }

 private:
  using Prefixes = std::unordered_map<std::string_view, const std::string*>;
  std::map<std::size_t, Prefixes, std::greater<>> by_length_;
};

struct Groups {
  std::vector<std::string> names;
  std::vector<std::uint32_t> of_parameter;
};

Groups find_groups(const std::vector<Parameter>& parameters, const PrefixTable& prefixes) {
  Groups groups;
  std::unordered_map<std::string_view, std::uint32_t> known;
  for (const Parameter& parameter : parameters) {
    const std::string* by_prefix = prefixes.find(parameter.name);
    const std::string& name = by_prefix != nullptr ? *by_prefix : parameter.group;
    const auto [entry, is_new] = known.emplace(name, static_cast<std::uint32_t>(groups.names.size()));
    if (is_new) {
      if (groups.names.size() == kMaxGroups) refuse("more than 1,024 groups; use fewer group names or prefixes");
      groups.names.push_back(name);
    }
    groups.of_parameter.push_back(entry->second);
  }
  return groups;
}

// Parameter indexes, those of one (group, dtype) together, by first appearance.
std::vector<std::uint32_t> find_order(const std::vector<Parameter>& parameters, const Groups& groups) {
  std::map<std::pair<std::uint32_t, DType>, std::size_t> run_of;
  std::vector<std::vector<std::uint32_t>> runs;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    const auto [entry, is_new] = run_of.emplace(std::pair(groups.of_parameter[i], parameters[i].dtype), runs.size());
    if (is_new) runs.emplace_back();
    runs[entry->second].push_back(i);
  }
  std::vector<std::uint32_t> order;
  order.reserve(parameters.size());
  for (const auto& run : runs) order.insert(order.end(), run.begin(), run.end());
  return order;
}

// Places parameters one behind the other and opens a bucket where the last one must end.
class Placer {
 public:
  Placer(std::uint64_t bucket_bytes, std::size_t parameters) : bucket_bytes_(bucket_bytes), placements_(parameters) {}

  void place(std::uint32_t index, const Parameter& parameter, std::uint32_t group) {
    // Both addends are at most 2^62, so neither line can wrap.
    const std::uint64_t offset = align_up(end_, kParameterAlignment);
    const std::uint64_t bytes = parameter.numel * element_bytes(parameter.dtype);
    end_ = offset + bytes;
    if (end_ > kMaxLayoutBytes) refuse("the parameters have more than 2^62 bytes together, from " + in_quotes(parameter.name) + " on");
    if (needs_bucket(parameter.dtype, group)) buckets_.push_back({placed_, 0, group, parameter.dtype, offset, 0});
    Bucket& bucket = buckets_.back();
    const auto bucket_index = static_cast<std::uint32_t>(buckets_.size() - 1);
    placements_[index] = {offset, bytes, bucket_index, group, bucket.parameters};
    bucket.bytes = end_ - bucket.offset;
    ++bucket.parameters;
    ++placed_;
  }

  std::vector<Placement> take_placements() { return std::move(placements_); }
  std::vector<Bucket> take_buckets() { return std::move(buckets_); }
  [[nodiscard]] std::uint64_t gradient_bytes() const { return align_up(end_, kBucketAlignment); }

 private:
  [[nodiscard]] bool needs_bucket(DType dtype, std::uint32_t group) const {
    if (buckets_.empty()) return true;
    const Bucket& last = buckets_.back();
    return last.dtype != dtype || last.group != group || end_ - last.offset > bucket_bytes_;
  }

  std::uint64_t bucket_bytes_;
  std::uint64_t end_ = 0;
  std::uint32_t placed_ = 0;
  std::vector<Placement> placements_;
  std::vector<Bucket> buckets_;
};

}  // namespace

static_assert(kParameterAlignment == kBucketAlignment, "a bucket begins where its first parameter does");

Layout::Layout(Manifest manifest, const LayoutOptions& options) : manifest_(std::move(manifest)), fingerprint_(fingerprint(manifest_)) {
  if (parameters().empty()) refuse("no parameters; register at least one");
  if (options.bucket_bytes == 0) refuse("bucket_bytes is 0; the default is " + std::to_string(kDefaultBucketBytes));
  Groups groups = find_groups(parameters(), PrefixTable(options.group_prefixes));
  order_ = find_order(parameters(), groups);
  Placer placer(options.bucket_bytes, parameters().size());
  for (const std::uint32_t index : order_) placer.place(index, parameters()[index], groups.of_parameter[index]);
  placements_ = placer.take_placements();
  buckets_ = placer.take_buckets();
  groups_ = std::move(groups.names);
  gradient_bytes_ = placer.gradient_bytes();
}

Layout::Layout(Manifest manifest, std::vector<Placement> placements, std::vector<Bucket> buckets, std::vector<std::uint32_t> order,
               std::vector<std::string> groups, std::uint64_t gradient_bytes)
    : manifest_(std::move(manifest)),
      placements_(std::move(placements)),
      buckets_(std::move(buckets)),
      order_(std::move(order)),
      groups_(std::move(groups)),
      gradient_bytes_(gradient_bytes),
      fingerprint_(fingerprint(manifest_)) {}

}  // namespace gradshm::core
