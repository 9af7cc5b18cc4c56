// The ordered list of parameters that a worker registers, and its text form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layout/parameter.hpp"

namespace gradshm::core {

inline constexpr std::size_t kMaxParameters = 1u << 20;

class Manifest {
 public:
  explicit Manifest(IdFunction id_of = parameter_id) : id_of_(id_of) {}

  // Throws Error(bad_layout) on a duplicate name or alias ("parameter 'a' is registered twice (positions 3 and 7)", counted from 0),
  // on two names with one id ("id collision between 'a' and 'b' (id ...): rename one of them"), on more than 2^20 parameters, or as
  // check_parameter. Unchanged if it throws.
  void add(Parameter parameter);

  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::size_t size() const noexcept { return parameters_.size(); }
  // Position by id; size() if there is none.
  [[nodiscard]] std::size_t find(std::uint64_t id) const;
  // Position by name or alias; size() if there is none.
  [[nodiscard]] std::size_t find_name(std::string_view name) const;

 private:
  void check_new(const Parameter& parameter) const;
  void forget(const Parameter& parameter) noexcept;

  IdFunction id_of_;
  std::vector<Parameter> parameters_;
  std::unordered_map<std::uint64_t, std::size_t> by_id_;      // ids of parameters
  std::unordered_map<std::string, std::size_t> by_name_;      // names and aliases
};

// 64 bits over (id, dtype, order, shape) of all parameters sorted by id, so that neither registration order nor groups matter.
[[nodiscard]] std::uint64_t fingerprint(const Manifest& manifest);

// Throws Error(layout_mismatch) unless `mine` has the same parameters as `theirs` by id, dtype, shape and order (partial: unless it
// is a subset). The sentence gives both counts where they differ, the first difference in registration order of `theirs`, how many
// differ, and the command to compare: "parameter 'fc1.weight' is f32[256,784] there and f32[784,256] here (1 of 8 parameters
// differs)". `instance` is the name to show. Missing and extra names are shown too (the first of each). Where stripping "module." or
// "_orig_mod." prefixes from one side would make the names match, it says so.
void check_match(const Manifest& theirs, const Manifest& mine, bool partial, std::string_view instance);

// TSV, see docs/layout-files.md: header line `name dtype shape numel [aliases] [group] [order]` (tab-separated; the optional columns
// by name, in any order), a row a parameter; `#` lines after the header are comments, except `#total\tN tensors\t-\tNUMEL`, which is
// checked. Throws Error(bad_layout) naming `source`, the line number, what was found and what was expected.
[[nodiscard]] Manifest parse_tsv(std::string_view text, std::string_view source);
[[nodiscard]] std::string to_tsv(const Manifest& manifest);

// Header of a safetensors file: 8 bytes little-endian length N (at most 100 MB), N bytes of JSON object {name: {dtype, shape,
// data_offsets: [begin, end]}, "__metadata__": {string: string}}. `text` begins with the 8 bytes and holds at least 8 + N;
// `file_bytes` is the whole file's size. Parameters in order of data offset (then name). Checked as the format demands: offsets
// within the file, no overlap, no hole, size = numel * element size. Other dtypes than ours are refused by name.
[[nodiscard]] Manifest parse_safetensors(std::string_view text, std::uint64_t file_bytes, std::string_view source);

// Reads a file and chooses by its name (".safetensors", otherwise TSV). Refuses directories, devices and pipes; TSV up to 256 MB.
// Throws Error: not_found or permission, naming path and reason, or bad_layout.
[[nodiscard]] Manifest load_manifest(const std::string& path);
[[nodiscard]] Manifest load_tsv(const std::string& path);
[[nodiscard]] Manifest load_safetensors(const std::string& path);

}  // namespace gradshm::core
