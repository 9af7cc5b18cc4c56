#include "layout/manifest.hpp"

#include <algorithm>
#include <utility>

#include "layout/hash.hpp"
#include "layout/names.hpp"

namespace gradshm::core {
namespace {

Error registered_twice(std::string_view name, std::size_t first, std::size_t second) {
  return {Status::bad_layout, "parameter " + in_quotes(name) + " is registered twice (positions " + std::to_string(first) + " and " +
                                  std::to_string(second) + ")"};
}

void append_word(std::string& bytes, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

}  // namespace

void Manifest::check_new(const Parameter& parameter) const {
  if (size() >= kMaxParameters) throw Error(Status::bad_layout, "more than 1,048,576 parameters; no layout can have so many");
  const auto check_name = [&](const std::string& name) {
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) throw registered_twice(name, known->second, size());
  };
  check_name(parameter.name);
  for (const std::string& alias : parameter.aliases) check_name(alias);
  const auto same_id = by_id_.find(parameter.id);
  if (same_id == by_id_.end()) return;
  throw Error(Status::bad_layout, "id collision between " + in_quotes(key_name(parameters_[same_id->second])) + " and " +
                                      in_quotes(key_name(parameter)) + " (id " + format_hex(parameter.id) + "): rename one of them");
}

void Manifest::forget(const Parameter& parameter) noexcept {
  by_id_.erase(parameter.id);
  by_name_.erase(parameter.name);
  for (const std::string& alias : parameter.aliases) by_name_.erase(alias);
  parameters_.pop_back();
}

void Manifest::add(Parameter parameter) {
  check_parameter(parameter, id_of_);
  check_new(parameter);
  const std::size_t position = size();
  parameters_.push_back(std::move(parameter));
  const Parameter& added = parameters_.back();
  try {
    by_id_.emplace(added.id, position);
    by_name_.emplace(added.name, position);
    for (const std::string& alias : added.aliases) by_name_.emplace(alias, position);
  } catch (...) {  // out of memory
    forget(added);
    throw;
  }
}

std::size_t Manifest::find(std::uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? size() : found->second;
}

std::size_t Manifest::find_name(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? size() : found->second;
}

std::uint64_t fingerprint(const Manifest& manifest) {
  std::vector<std::pair<std::uint64_t, const Parameter*>> sorted;
  sorted.reserve(manifest.size());
  for (const Parameter& parameter : manifest.parameters()) sorted.emplace_back(parameter.id, &parameter);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string bytes;
  for (const auto& [id, parameter] : sorted) {
    append_word(bytes, id);
    append_word(bytes, static_cast<std::uint64_t>(parameter->dtype));
    append_word(bytes, static_cast<std::uint64_t>(parameter->order));
    append_word(bytes, parameter->shape.size());
    for (const std::int64_t dim : parameter->shape) append_word(bytes, static_cast<std::uint64_t>(dim));
  }
  return hash_bytes(bytes);
}

}  // namespace gradshm::core
