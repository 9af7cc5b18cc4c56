#include "layout/layout.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {

Parameter in_group(Parameter parameter, const std::string& group) {
  parameter.group = group;
  return parameter;
}

std::vector<std::string> names_by_offset(const Layout& layout) {
  std::vector<std::string> names;
  for (const std::uint32_t index : layout.order()) names.push_back(layout.parameters()[index].name);
  return names;
}

Caught refusal(const std::vector<Parameter>& parameters, const LayoutOptions& options = {}) {
  return caught([&] { Layout(make_manifest(parameters), options); });
}

void check_parameters_do_not_overlap(const Layout& layout) {
  std::uint64_t end = 0;
  for (const std::uint32_t index : layout.order()) {
    const Placement& placement = layout.placements()[index];
    const Parameter& parameter = layout.parameters()[index];
    RC_ASSERT(placement.offset % 64 == 0);
    RC_ASSERT(placement.offset >= end);
    RC_ASSERT(placement.offset < end + 64);
    RC_ASSERT(placement.bytes == parameter.numel * element_bytes(parameter.dtype));
    end = placement.offset + placement.bytes;
  }
  RC_ASSERT(layout.gradient_bytes() == (end + 63) / 64 * 64);
}

void check_bucket(const Layout& layout, std::uint32_t index, std::uint64_t bucket_bytes) {
  const Bucket& bucket = layout.buckets()[index];
  RC_ASSERT(bucket.parameters >= 1);
  RC_ASSERT(bucket.parameters == 1 || bucket.bytes <= bucket_bytes);
  RC_ASSERT(bucket.bytes % element_bytes(bucket.dtype) == 0);
  RC_ASSERT(layout.placements()[layout.order()[bucket.first]].offset == bucket.offset);
  for (std::uint32_t i = 0; i < bucket.parameters; ++i) {
    const std::uint32_t parameter = layout.order()[bucket.first + i];
    const Placement& placement = layout.placements()[parameter];
    RC_ASSERT(placement.bucket == index);
    RC_ASSERT(placement.position == i);
    RC_ASSERT(placement.group == bucket.group);
    RC_ASSERT(layout.parameters()[parameter].dtype == bucket.dtype);
    RC_ASSERT(placement.offset + placement.bytes <= bucket.offset + bucket.bytes);
  }
}

void check_buckets(const Layout& layout, std::uint64_t bucket_bytes) {
  std::uint32_t first = 0;
  std::uint64_t end = 0;
  for (std::uint32_t i = 0; i < layout.buckets().size(); ++i) {
    const Bucket& bucket = layout.buckets()[i];
    RC_ASSERT(bucket.first == first);
    RC_ASSERT(bucket.offset == (end + 63) / 64 * 64);
    check_bucket(layout, i, bucket_bytes);
    first += bucket.parameters;
    end = bucket.offset + bucket.bytes;
  }
  RC_ASSERT(first == layout.parameters().size());
}

}  // namespace

TEST_CASE("parameters are placed in registration order at multiples of 64 bytes") {
  const Layout layout(make_manifest({make_parameter("b", DType::f32, {3}), make_parameter("a", DType::f32, {17}), make_parameter("c")}), {});
  CHECK(names_by_offset(layout) == std::vector<std::string>{"b", "a", "c"});
  CHECK(layout.placements()[0].offset == 0);
  CHECK(layout.placements()[1].offset == 64);
  CHECK(layout.placements()[2].offset == 192);
  CHECK(layout.gradient_bytes() == 256);
  REQUIRE(layout.buckets().size() == 1);
  CHECK(layout.buckets()[0].bytes == 200);
}

TEST_CASE("parameters of one group and dtype lie together, by first appearance") {
  const Layout layout(make_manifest({make_parameter("a", DType::f16), in_group(make_parameter("b"), "g"), make_parameter("c"),
                                     make_parameter("d", DType::f16), in_group(make_parameter("e"), "g")}),
                      {});
  CHECK(names_by_offset(layout) == std::vector<std::string>{"a", "d", "b", "e", "c"});
  CHECK(layout.groups() == std::vector<std::string>{"", "g"});
  REQUIRE(layout.buckets().size() == 3);
  CHECK(layout.buckets()[0].dtype == DType::f16);
  CHECK(layout.buckets()[1].group == 1);
  CHECK(layout.buckets()[2].dtype == DType::f32);
}

TEST_CASE("the longest matching prefix decides the group, else the manifest does") {
  LayoutOptions options;
  options.group_prefixes = {"policy.", "policy.head.", "unused."};
  const Layout layout(make_manifest({make_parameter("policy.w"), make_parameter("policy.head.w"), in_group(make_parameter("critic.w"), "c"),
                                     in_group(make_parameter("policy.v"), "c"), make_parameter("polic")}),
                      options);
  CHECK(layout.groups() == std::vector<std::string>{"policy.", "policy.head.", "c", ""});
  std::vector<std::uint32_t> groups;
  for (const Placement& placement : layout.placements()) groups.push_back(placement.group);
  CHECK(groups == std::vector<std::uint32_t>{0, 1, 2, 0, 3});
}

TEST_CASE("a parameter larger than a bucket is a bucket of its own") {
  LayoutOptions options;
  options.bucket_bytes = 256;
  const auto sized = [](const char* name, std::int64_t floats) { return make_parameter(name, DType::f32, {floats}); };
  const Layout layout(make_manifest({sized("a", 16), sized("big", 65), sized("b", 16), sized("c", 48), sized("d", 1)}), options);
  std::vector<std::uint32_t> counts;
  for (const Bucket& bucket : layout.buckets()) counts.push_back(bucket.parameters);
  CHECK(counts == std::vector<std::uint32_t>{1, 1, 2, 1});  // b and c fill 256 bytes exactly
  CHECK(layout.buckets()[1].bytes == 260);
}

TEST_CASE("parameters without elements have a place and no bytes") {
  const Layout layout(load_tsv(table_path("edge_cases")), {});
  CHECK(layout.parameters()[0].shape == std::vector<std::int64_t>{0, 10});
  CHECK(layout.placements()[0].bytes == 0);
  const Layout empty(make_manifest({make_parameter("a", DType::f32, {0}), make_parameter("b", DType::f32, {0, 3})}), {});
  CHECK(empty.gradient_bytes() == 0);
  CHECK(empty.buckets().size() == 1);
}

TEST_CASE("the first manifest decides the offsets, and a shuffled one has the same fingerprint") {  // Z1
  const Manifest file = load_tsv(table_path("resnet34"));
  std::vector<Parameter> shuffled = file.parameters();
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(3));
  const Layout first(file, {});
  const Layout other(make_manifest(shuffled), {});
  CHECK(first.layout_fingerprint() == other.layout_fingerprint());
  CHECK(first.layout_fingerprint() == fingerprint(make_manifest(shuffled)));
  CHECK(encode_layout(first) == encode_layout(Layout(file, {})));
  CHECK(encode_layout(first) != encode_layout(other));
}

TEST_CASE("impossible layouts are refused") {
  CHECK(refusal({}).status == Status::bad_layout);
  CHECK(refusal({}).says("no parameters"));
  CHECK(refusal({make_parameter("a")}, {0, {}}).says("bucket_bytes is 0"));
  CHECK(refusal({make_parameter("a")}, {64, {"ok", "b\x01"}}).says("group prefix 'b\\x01'"));
  const auto huge = [](const char* name) { return make_parameter(name, DType::f32, {(std::int64_t{1} << 60) - 1}); };
  CHECK(refusal({huge("a")}).status == Status::ok);
  CHECK(refusal({huge("a"), huge("b")}).says("more than 2^62 bytes together, from 'b' on"));
}

TEST_CASE("there are at most 1,024 groups") {
  std::vector<Parameter> parameters;
  for (int i = 0; i < 1024; ++i) parameters.push_back(in_group(make_parameter(std::to_string(i)), "g" + std::to_string(i)));
  CHECK(Layout(make_manifest(parameters), {}).groups().size() == 1024);
  parameters.push_back(make_parameter("one more"));
  CHECK(refusal(parameters).says("more than 1,024 groups"));
}

TEST_CASE("placements never overlap and buckets cover all parameters, whatever is registered") {
  CHECK(rc::check([] {
    const Manifest manifest = any_manifest();
    const LayoutOptions options = any_options();
    const Layout layout(manifest, options);
    check_parameters_do_not_overlap(layout);
    check_buckets(layout, options.bucket_bytes);
    const std::set<std::uint32_t> distinct(layout.order().begin(), layout.order().end());
    RC_ASSERT(distinct.size() == manifest.size());
    RC_ASSERT(encode_layout(layout) == encode_layout(Layout(manifest, options)));
  }));
}

TEST_CASE("buckets of one group and dtype are as few as their size allows") {
  CHECK(rc::check([] {
    const LayoutOptions options = any_options();
    const Layout layout(any_manifest(), options);
    for (std::size_t i = 1; i < layout.buckets().size(); ++i) {
      const Bucket& before = layout.buckets()[i - 1];
      const Bucket& bucket = layout.buckets()[i];
      if (before.group != bucket.group || before.dtype != bucket.dtype) continue;
      const Placement& first = layout.placements()[layout.order()[bucket.first]];
      RC_ASSERT(first.offset + first.bytes - before.offset > options.bucket_bytes);
    }
  }));
}
