// Reads the TSV form of a manifest; docs/layout-files.md describes it.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/checked.hpp"
#include "layout/manifest.hpp"
#include "layout/names.hpp"
#include "layout/tsv_format.hpp"

namespace gradshm::core {
namespace {

constexpr std::array<std::string_view, 7> kColumns{"name", "dtype", "shape", "numel", "aliases", "group", "order"};
constexpr std::size_t kRequiredColumns = 4;
enum Column : std::size_t { kName, kDtype, kShape, kNumel, kAliases, kGroup, kOrder };

// At most kMaxParts, more than any field may have; the last one then holds the rest.
std::vector<std::string_view> split(std::string_view text, char separator) {
  constexpr std::size_t kMaxParts = 300;
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = parts.size() + 1 < kMaxParts ? text.find(separator) : std::string_view::npos;
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Digits only, no sign, no leading zero; nullopt also where it does not fit.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  const bool has_digits = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!has_digits || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

class TsvParser {
 public:
  TsvParser(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

  Manifest parse() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
    const auto header = next_line();
    if (!header) fail("the file is empty; expected a header line: name, dtype, shape, numel, separated by tabs");
    parse_header(*header);
    while (const auto line = next_line()) {
      if (line->starts_with('#')) {
        parse_comment(*line);
      } else if (!line->empty()) {
        parse_row(*line);
      }
    }
    return std::move(manifest_);
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw Error(Status::bad_layout, escape(source_) + ", line " + std::to_string(line_) + ": " + fault);
  }

  std::optional<std::string_view> next_line() {
    ++line_;
    if (rest_.empty()) return std::nullopt;
    const std::size_t at = rest_.find('\n');
    std::string_view line = rest_.substr(0, at);
    rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  void parse_header(std::string_view line) {
    const auto names = split(line, '\t');
    for (std::size_t i = 0; i < kRequiredColumns; ++i) {
      if (i < names.size() && names[i] == kColumns[i]) continue;
      fail("expected the header line 'name', 'dtype', 'shape', 'numel', separated by tabs, and found " + in_quotes(line));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto known = std::find(kColumns.begin(), kColumns.end(), names[i]);
      if (known == kColumns.end()) fail("unknown column " + in_quotes(names[i]) + "; optional ones are aliases, group and order");
      auto& place = place_of_[static_cast<std::size_t>(known - kColumns.begin())];
      if (place) fail("column " + in_quotes(names[i]) + " is there twice");
      place = i;
    }
    field_count_ = names.size();
  }

  void parse_row(std::string_view line) {
    if (has_total_) fail("a row after the #total line; is this two files in one?");
    const auto fields = split(line, '\t');
    if (fields.size() != field_count_) {
      const auto found = static_cast<std::uint64_t>(std::count(line.begin(), line.end(), '\t')) + 1;
      fail("expected " + plural(field_count_, "field") + " separated by tabs, as the header has, and found " + format_count(found));
    }
    Parameter parameter;
    parameter.name = fields[kName];
    parameter.dtype = parse_type(fields[kDtype]);
    parameter.shape = parse_shape(fields[kShape]);
    if (place_of_[kAliases]) parameter.aliases = parse_aliases(fields[*place_of_[kAliases]]);
    if (place_of_[kGroup]) parameter.group = fields[*place_of_[kGroup]];
    if (place_of_[kOrder]) parameter.order = parse_order(fields[*place_of_[kOrder]]);
    add(std::move(parameter), fields[kNumel]);
  }

  void add(Parameter parameter, std::string_view numel) {
    try {
      manifest_.add(std::move(parameter));
    } catch (const Error& error) {
      fail(error.what());
    }
    const Parameter& added = manifest_.parameters().back();
    if (parse_number<std::uint64_t>(numel) != added.numel) {
      fail("parameter " + in_quotes(added.name) + " has numel " + in_quotes(numel) + ", but its shape has " + plural(added.numel, "element"));
    }
    if (numel_) numel_ = checked_add(*numel_, added.numel);
  }

  [[nodiscard]] DType parse_type(std::string_view text) const {
    const auto dtype = parse_dtype(text);
    if (!dtype) fail("unknown dtype " + in_quotes(text) + "; known are float32, float64, float16 and bfloat16");
    return *dtype;
  }

  [[nodiscard]] std::vector<std::int64_t> parse_shape(std::string_view text) const {
    std::vector<std::int64_t> shape;
    if (text == "()") return shape;
    for (const std::string_view part : split(text, 'x')) {
      const auto dim = parse_number<std::int64_t>(part);
      if (!dim) fail("bad shape " + in_quotes(text) + "; expected () or decimal dimensions joined by x, such as 64x3x7x7");
      shape.push_back(*dim);
    }
    return shape;
  }

  [[nodiscard]] static std::vector<std::string> parse_aliases(std::string_view text) {
    if (text.empty()) return {};
    const auto parts = split(text, '|');
    return {parts.begin(), parts.end()};
  }

  [[nodiscard]] Order parse_order(std::string_view text) const {
    if (text != "C" && text != "F") fail("unknown order " + in_quotes(text) + "; expected C (row-major) or F (column-major)");
    return text == "C" ? Order::c : Order::f;
  }

  // `#total<tab>N tensors<tab>-<tab>NUMEL`; what only begins like it is refused, lest a damaged total be taken for a comment.
  void parse_comment(std::string_view line) {
    if (!line.starts_with("#total")) return;
    if (has_total_) fail("a second #total line; is this two files in one?");
    has_total_ = true;
    const std::string wanted = tsv_total_line(manifest_.size(), numel_);
    if (line != wanted) fail("the total is " + in_quotes(line) + ", but the rows above it make " + in_quotes(wanted) + "; is the file complete?");
  }

  std::string_view rest_;
  std::string_view source_;
  std::size_t line_ = 0;
  std::array<std::optional<std::size_t>, kColumns.size()> place_of_{};
  std::size_t field_count_ = 0;
  bool has_total_ = false;
  std::optional<std::uint64_t> numel_ = 0;
  Manifest manifest_;
};

}  // namespace

Manifest parse_tsv(std::string_view text, std::string_view source) { return TsvParser(text, source).parse(); }

}  // namespace gradshm::core
