// Reads the header of a safetensors file; docs/layout-files.md describes what is accepted.
#include "layout/safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "base/checked.hpp"
#include "layout/manifest.hpp"
#include "layout/names.hpp"

namespace gradshm::core {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct Tensor {
  Parameter parameter;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// A machine over the events of the JSON parser, which keeps no stack of its own; whatever is not expected in a state is refused, so
// nothing can nest deeper than the format does.
class HeaderReader : public Json::json_sax_t {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  std::vector<Tensor> take_tensors() { return std::move(tensors_); }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(number_integer_t value) override { refuse("the negative number " + std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { refuse("the number " + in_quotes(text)); }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape) {
      add_dim(value);
    } else if (state_ == State::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensors_.back().begin : tensors_.back().end) = value;
    } else {
      refuse("the number " + std::to_string(value));
    }
    return true;
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata) return true;
    if (state_ != State::tensor || field_ != Field::dtype) refuse("a string");
    // Other spellings than the format's are not ours to guess.
    const bool is_upper = std::none_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    const auto dtype = is_upper ? parse_dtype(text) : std::nullopt;
    if (!dtype) fail("the dtype " + in_quotes(text) + ", which cannot be reduced; known are F32, F64, F16 and BF16");
    tensors_.back().parameter.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::start) {
      state_ = State::root;
    } else if (state_ == State::root && tensor_name_ == "__metadata__") {
      state_ = State::metadata;
    } else if (state_ == State::root) {
      begin_tensor();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor && seen_ != kAllFields) fail("not all of dtype, shape and data_offsets");
    state_ = state_ == State::root ? State::done : State::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::tensor && field_ == Field::shape) {
      state_ = State::shape;
    } else if (state_ == State::tensor && field_ == Field::offsets) {
      state_ = State::offsets;
    } else {
      refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && offsets_ != 2) fail("data_offsets of " + plural(offsets_, "number") + "; expected [begin, end]");
    state_ = State::tensor;
    return true;
  }

  bool key(string_t& text) override {
    if (state_ == State::root) {
      if (!names_.insert(text).second) fail_at("the key " + in_quotes(text) + " is there twice");
      tensor_name_ = text;
    } else if (state_ == State::metadata) {
      if (!metadata_.insert(text).second) fail_at("the key " + in_quotes(text) + " of __metadata__ is there twice");
    } else {
      field_key(text);
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    // The parser's sentence without its own positions, and not all of a token of megabytes.
    constexpr std::size_t kShownBytes = 160;
    const std::string_view what = error.what();
    const std::size_t reason = what.find("syntax error");
    fail_at("no JSON at byte " + std::to_string(position + kSafetensorsPrefixBytes) + " of the file: " +
            escape(what.substr(reason == std::string_view::npos ? 0 : reason).substr(0, kShownBytes)));
  }

 private:
  enum class State { start, root, metadata, tensor, shape, offsets, done };
  enum class Field : unsigned { none = 0, dtype = 1, shape = 2, offsets = 4 };
  static constexpr unsigned kAllFields = 7;

  [[noreturn]] void fail_at(const std::string& fault) const {
    throw Error(Status::bad_layout, escape(source_) + ": the header of this safetensors file is malformed: " + fault);
  }

  [[noreturn]] void fail(const std::string& fault) const {
    fail_at(state_ == State::start || (state_ == State::root && tensor_name_.empty()) ? "it has " + fault
                                                                                   : "tensor " + in_quotes(tensor_name_) + " has " + fault);
  }

  [[noreturn]] void refuse(const std::string& found) const {
    switch (state_) {
      case State::start: fail_at("it is " + found + "; expected an object");
      case State::metadata: fail_at("__metadata__ has " + found + "; expected only strings");
      case State::shape: fail(found + " in its shape; expected integers of at least 0");
      case State::offsets: fail(found + " in its data_offsets; expected two integers of at least 0");
      default: fail(found + " where none belongs; expected {dtype, shape, data_offsets}");
    }
  }

  void begin_tensor() {
    if (tensors_.size() == kMaxParameters) fail_at("it has more than 1,048,576 tensors; no layout can have so many");
    state_ = State::tensor;
    field_ = Field::none;
    seen_ = 0;
    offsets_ = 0;
    tensors_.emplace_back().parameter.name = tensor_name_;
  }

  void field_key(const std::string& text) {
    field_ = text == "dtype" ? Field::dtype : text == "shape" ? Field::shape : text == "data_offsets" ? Field::offsets : Field::none;
    if (field_ == Field::none) fail("the unknown key " + in_quotes(text) + "; expected dtype, shape and data_offsets");
    if ((seen_ & static_cast<unsigned>(field_)) != 0) fail("the key " + in_quotes(text) + " twice");
    seen_ |= static_cast<unsigned>(field_);
  }

  void add_dim(std::uint64_t value) {
    std::vector<std::int64_t>& shape = tensors_.back().parameter.shape;
    if (shape.size() == kMaxDims) fail("more than 16 dimensions");
    if (value > INT64_MAX) fail("the impossible dimension " + std::to_string(value));
    shape.push_back(static_cast<std::int64_t>(value));
  }

  std::string_view source_;
  State state_ = State::start;
  Field field_ = Field::none;
  unsigned seen_ = 0;
  unsigned offsets_ = 0;
  std::string tensor_name_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_;
};

[[noreturn]] void fail(std::string_view source, const std::string& fault) {
  throw Error(Status::bad_layout, escape(source) + ": " + fault);
}

std::vector<Tensor> read_header(std::string_view json, std::string_view source) {
  if (json.empty() || json.front() != '{') fail(source, "this is no safetensors file: its header does not begin with { at byte 8");
  HeaderReader reader(source);
  // The reader throws instead of returning false.
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) fail(source, "the header of this safetensors file is malformed");
  std::vector<Tensor> tensors = reader.take_tensors();
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.parameter.name) < std::tie(b.begin, b.end, b.parameter.name);
  });
  return tensors;
}

// begin: where the data of the tensor before it ends. parameter: that of `tensor`, as checked.
void check_place(const Tensor& tensor, const Parameter& parameter, std::uint64_t begin, std::uint64_t data_bytes, std::string_view source) {
  const std::string range = " (bytes " + std::to_string(tensor.begin) + " to " + std::to_string(tensor.end) + " of the data)";
  const std::string who = "tensor " + in_quotes(parameter.name) + range;
  if (tensor.begin > tensor.end) fail(source, who + " ends before it begins");
  if (tensor.end > data_bytes) fail(source, who + " reaches beyond the file, which has " + plural(data_bytes, "byte") + " of data");
  if (tensor.begin < begin) fail(source, who + " overlaps the one before it, which ends at " + std::to_string(begin));
  if (tensor.begin > begin) fail(source, who + " does not follow on the one before it, which ends at " + std::to_string(begin));
  const std::uint64_t wanted = parameter.numel * element_bytes(parameter.dtype);
  if (tensor.end - tensor.begin == wanted) return;
  fail(source, who + " is " + describe(parameter) + ", which has " + plural(wanted, "byte"));
}

}  // namespace

std::uint64_t safetensors_header_bytes(std::string_view text, std::uint64_t file_bytes, std::string_view source) {
  if (text.size() < kSafetensorsPrefixBytes || file_bytes < kSafetensorsPrefixBytes) {
    fail(source, "a safetensors file begins with 8 bytes of length; this one has only " + plural(std::min(text.size(), file_bytes), "byte"));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsPrefixBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[i]);
  const std::string claim = "its first 8 bytes say that its header has " + plural(length, "byte");
  if (length > kMaxHeaderBytes) fail(source, claim + "; at most 100 MB are possible");
  if (length > file_bytes - kSafetensorsPrefixBytes) {
    fail(source, claim + ", but the file has " + format_count(file_bytes) + "; is it complete?");
  }
  return length;
}

Manifest parse_safetensors(std::string_view text, std::uint64_t file_bytes, std::string_view source) {
  const std::uint64_t header_bytes = safetensors_header_bytes(text, file_bytes, source);
  if (text.size() - kSafetensorsPrefixBytes < header_bytes) fail(source, "the file ends within its header; is it complete?");
  const std::uint64_t data_bytes = file_bytes - kSafetensorsPrefixBytes - header_bytes;
  Manifest manifest;
  std::uint64_t end = 0;
  for (Tensor& tensor : read_header(text.substr(kSafetensorsPrefixBytes, header_bytes), source)) {
    try {
      manifest.add(std::move(tensor.parameter));
    } catch (const Error& error) {
      fail(source, error.what());
    }
    check_place(tensor, manifest.parameters().back(), end, data_bytes, source);
    end = tensor.end;
  }
  if (end != data_bytes) {
    fail(source, "the last " + plural(data_bytes - end, "byte") + " of the file belong to no tensor; is its header damaged?");
  }
  return manifest;
}

}  // namespace gradshm::core
