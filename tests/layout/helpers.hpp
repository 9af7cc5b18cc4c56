// What the tests of this layer share.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "layout/layout.hpp"

namespace gradshm::core {

inline Parameter make_parameter(std::string name, DType dtype = DType::f32, std::vector<std::int64_t> shape = {2}) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.dtype = dtype;
  parameter.shape = std::move(shape);
  return parameter;
}

inline Parameter tied(std::string name, std::vector<std::string> aliases) {
  Parameter parameter = make_parameter(std::move(name));
  parameter.aliases = std::move(aliases);
  return parameter;
}

inline Parameter column_major(Parameter parameter) {
  parameter.order = Order::f;
  return parameter;
}

inline Manifest make_manifest(const std::vector<Parameter>& parameters) {
  Manifest manifest;
  for (const Parameter& parameter : parameters) manifest.add(parameter);
  return manifest;
}

// The status and sentence of the Error that `call` throws; ok and "" if it throws none.
struct Caught {
  Status status = Status::ok;
  std::string sentence;
  [[nodiscard]] bool says(const std::string& text) const { return sentence.find(text) != std::string::npos; }
};

inline Caught caught(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {};
}

inline const std::vector<std::string>& real_tables() {
  static const std::vector<std::string> names{"edge_cases",      "gpt2_small", "llama3_2_1b",      "mixer_b16_224",   "resnet34",
                                              "resnet50",        "vit_b_16",   "wrn16_4_adadamp",  "wrn16_4_original", "tinyllama_1_1b"};
  return names;
}

inline std::string table_path(const std::string& name) { return std::string(GRADSHM_TEST_DATA) + "/params/" + name + ".tsv"; }

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Any list of parameters that can be registered: all dtypes, both orders, empty tensors, groups, aliases.
inline Parameter any_parameter(std::size_t index) {
  Parameter parameter = make_parameter("p" + std::to_string(*rc::gen::inRange(0, 1000)) + "." + std::to_string(index));
  parameter.dtype = *rc::gen::element(DType::f32, DType::f64, DType::f16, DType::bf16);
  parameter.order = *rc::gen::element(Order::c, Order::f);
  parameter.shape = *rc::gen::resize(4, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 12)));
  parameter.group = *rc::gen::element<std::string>("", "", "policy", "größe");
  const int aliases = *rc::gen::weightedElement<int>({{6, 0}, {1, 1}, {1, 3}});
  for (int i = 0; i < aliases; ++i) parameter.aliases.push_back("alias" + std::to_string(i) + " of " + std::to_string(index));
  return parameter;
}

inline Manifest any_manifest() {
  const auto count = *rc::gen::inRange<std::size_t>(1, 40);
  Manifest manifest;
  for (std::size_t i = 0; i < count; ++i) manifest.add(any_parameter(i));
  return manifest;
}

inline LayoutOptions any_options() {
  LayoutOptions options;
  options.bucket_bytes = *rc::gen::element<std::uint64_t>(1, 64, 100, 256, 1000, 4096, kDefaultBucketBytes, UINT64_MAX);
  options.group_prefixes = *rc::gen::element(std::vector<std::string>{}, std::vector<std::string>{"p1", "p12", "p"});
  return options;
}

}  // namespace gradshm::core
