// The comparison of two manifests, in words.
#include <algorithm>
#include <array>
#include <optional>

#include "layout/manifest.hpp"
#include "layout/names.hpp"

namespace gradshm::core {
namespace {

struct Differences {
  std::size_t count = 0;
  std::size_t compared = 0;
  const Parameter* first = nullptr;         // of theirs: differs, or is missing here
  const Parameter* first_mine = nullptr;    // its counterpart; null if missing
  const Parameter* first_missing = nullptr;  // of theirs
  const Parameter* first_extra = nullptr;    // of mine
};

bool is_same(const Parameter& a, const Parameter& b) {
  return a.dtype == b.dtype && a.order == b.order && a.shape == b.shape && key_name(a) == key_name(b);
}

void compare_theirs(const Manifest& theirs, const Manifest& mine, bool partial, Differences& found) {
  for (const Parameter& parameter : theirs.parameters()) {
    const std::size_t at = mine.find(parameter.id);
    const bool is_missing = at == mine.size();
    if (is_missing && partial) continue;
    if (!is_missing && is_same(parameter, mine.parameters()[at])) continue;
    ++found.count;
    if (is_missing && found.first_missing == nullptr) found.first_missing = &parameter;
    if (found.first != nullptr) continue;
    found.first = &parameter;
    found.first_mine = is_missing ? nullptr : &mine.parameters()[at];
  }
}

Differences compare(const Manifest& theirs, const Manifest& mine, bool partial) {
  Differences found;
  found.compared = theirs.size();
  compare_theirs(theirs, mine, partial, found);
  for (const Parameter& parameter : mine.parameters()) {
    if (theirs.find(parameter.id) != theirs.size()) continue;
    ++found.count;
    ++found.compared;
    if (found.first_extra == nullptr) found.first_extra = &parameter;
  }
  return found;
}

std::string describe_order(const Parameter& parameter) { return parameter.order == Order::c ? " row-major" : ""; }

std::string difference_text(const Parameter& there, const Parameter& here) {
  if (key_name(there) != key_name(here)) {
    return "parameter " + in_quotes(key_name(there)) + " there and " + in_quotes(key_name(here)) + " here have one id (" +
           format_hex(there.id) + "): rename one of them";
  }
  const bool orders_differ = there.order != here.order;
  return "parameter " + in_quotes(there.name) + " is " + describe(there) + (orders_differ ? describe_order(there) : "") + " there and " +
         describe(here) + (orders_differ ? describe_order(here) : "") + " here";
}

// A name that only one side registers for itself, and that is tied to another one on the other side.
std::string alias_hint(const Manifest& other, const Parameter& parameter, const char* where) {
  const std::size_t at = other.find_name(key_name(parameter));
  if (at == other.size()) return {};
  return std::string(" (") + where + " it is another name of " + in_quotes(key_name(other.parameters()[at])) +
         "; register tied names as aliases)";
}

// Whether every name of `from`, changed so where `change` applies to it, is one of `to`, and it applies to at least one.
template <class Change>
bool fits(const Manifest& from, const Manifest& to, Change change) {
  bool has_changed = false;
  const bool all = std::all_of(from.parameters().begin(), from.parameters().end(), [&](const Parameter& parameter) {
    if (to.find_name(parameter.name) != to.size()) return true;
    has_changed = true;
    const std::optional<std::string> changed = change(parameter.name);
    return changed && to.find_name(*changed) != to.size();
  });
  return all && has_changed;
}

std::string prefix_hint(const Manifest& theirs, const Manifest& mine, bool partial) {
  if (!partial && theirs.size() != mine.size()) return {};
  constexpr std::array<std::string_view, 4> kPrefixes{"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."};
  for (const std::string_view prefix : kPrefixes) {
    const auto without = [&](const std::string& name) {
      return name.starts_with(prefix) ? std::optional(name.substr(prefix.size())) : std::nullopt;
    };
    const auto with = [&](const std::string& name) { return std::optional(std::string(prefix) + name); };
    const std::string text = "; without the prefix '" + std::string(prefix) + "' the names ";
    if (fits(mine, theirs, without)) return text + "here would match: register the model that is not wrapped";
    if (fits(mine, theirs, with)) return text + "there would match: the first to register did so with a wrapped model";
  }
  return {};
}

std::string counts_text(const Manifest& theirs, const Manifest& mine, bool partial) {
  if (partial || theirs.size() == mine.size()) return {};
  return plural(theirs.size(), "parameter") + " there and " + format_count(mine.size()) + " here; ";
}

std::string first_text(const Differences& found, const Manifest& theirs, const Manifest& mine) {
  std::string text;
  if (found.first != nullptr && found.first_mine != nullptr) text = difference_text(*found.first, *found.first_mine);
  if (found.first_missing != nullptr) {
    text += (text.empty() ? "parameter " : ", ") + in_quotes(key_name(*found.first_missing)) + " is missing here" +
            alias_hint(mine, *found.first_missing, "here");
  }
  if (found.first_extra != nullptr) {
    text += (text.empty() ? "parameter " : ", ") + in_quotes(key_name(*found.first_extra)) + " is not known there" +
            alias_hint(theirs, *found.first_extra, "there");
  }
  return text;
}

}  // namespace

void check_match(const Manifest& theirs, const Manifest& mine, bool partial, std::string_view instance) {
  const Differences found = compare(theirs, mine, partial);
  if (found.count == 0) return;
  std::string text = counts_text(theirs, mine, partial) + first_text(found, theirs, mine) + " (" + format_count(found.count) + " of " +
                     plural(found.compared, "parameter") + (found.count == 1 ? " differs)" : " differ)");
  if (found.first_missing != nullptr || found.first_extra != nullptr) text += prefix_hint(theirs, mine, partial);
  text += ". Layouts must match by name, dtype, shape and order; compare them with: gradshm layout diff " + escape(instance) + " my.tsv";
  throw Error(Status::layout_mismatch, text);
}

}  // namespace gradshm::core
