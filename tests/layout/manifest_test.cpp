#include "layout/manifest.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {
std::uint64_t same_id(std::string_view) { return 42; }

std::uint64_t fingerprint_of(const std::vector<Parameter>& parameters) { return fingerprint(make_manifest(parameters)); }
}  // namespace

TEST_CASE("parameters are found by id and by each of their names") {
  const Manifest manifest = make_manifest({make_parameter("a"), tied("z", {"b", "c"})});
  CHECK(manifest.find(parameter_id("a")) == 0);
  CHECK(manifest.find(parameter_id("b")) == 1);
  CHECK(manifest.find(parameter_id("z")) == 2);  // no id: b is smaller
  for (const char* name : {"z", "b", "c"}) CHECK(manifest.find_name(name) == 1);
  CHECK(manifest.find_name("nobody") == 2);
}

TEST_CASE("a name that is registered twice is refused with both positions, and nothing changes") {
  Manifest manifest = make_manifest({make_parameter("a"), tied("b", {"c"}), make_parameter("d")});
  CHECK(caught([&] { manifest.add(make_parameter("a")); }).sentence == "parameter 'a' is registered twice (positions 0 and 3)");
  CHECK(caught([&] { manifest.add(make_parameter("c")); }).sentence == "parameter 'c' is registered twice (positions 1 and 3)");
  CHECK(caught([&] { manifest.add(tied("new", {"newer", "d"})); }).says("'d' is registered twice (positions 2 and 3)"));
  CHECK(manifest.size() == 3);
  CHECK(manifest.find_name("new") == 3);
  manifest.add(make_parameter("new"));
  CHECK(manifest.find_name("new") == 3);
}

TEST_CASE("two names with one id are refused and both named") {
  Manifest manifest(same_id);
  manifest.add(make_parameter("a"));
  const Caught refusal = caught([&] { manifest.add(make_parameter("b")); });
  CHECK(refusal.status == Status::bad_layout);
  CHECK(refusal.sentence == "id collision between 'a' and 'b' (id 000000000000002a): rename one of them");
  CHECK(manifest.size() == 1);
  CHECK(caught([&] { manifest.add(make_parameter("a")); }).says("registered twice"));
}

TEST_CASE("2^20 parameters can be registered and no more") {
  Manifest manifest;
  for (std::size_t i = 0; i < kMaxParameters; ++i) manifest.add(make_parameter(std::to_string(i), DType::f32, {}));
  const Caught refusal = caught([&] { manifest.add(make_parameter("one more")); });
  CHECK(refusal.status == Status::bad_layout);
  CHECK(refusal.says("more than 1,048,576 parameters"));
  CHECK(manifest.size() == kMaxParameters);
}

TEST_CASE("the fingerprint does not depend on registration order or groups") {
  for (const std::string& table : real_tables()) {
    CAPTURE(table);
    const Manifest manifest = load_tsv(table_path(table));
    std::vector<Parameter> shuffled = manifest.parameters();
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(7));
    shuffled.front().group = "other";
    CHECK(fingerprint_of(shuffled) == fingerprint(manifest));
  }
}

TEST_CASE("the fingerprint depends on names, dtypes, shapes and orders") {
  const auto base = fingerprint_of({make_parameter("a", DType::f32, {2, 3}), make_parameter("b")});
  CHECK(base != fingerprint_of({make_parameter("a", DType::f32, {2, 3})}));
  CHECK(base != fingerprint_of({make_parameter("a", DType::f32, {2, 3}), make_parameter("c")}));
  CHECK(base != fingerprint_of({make_parameter("a", DType::f64, {2, 3}), make_parameter("b")}));
  CHECK(base != fingerprint_of({make_parameter("a", DType::f32, {3, 2}), make_parameter("b")}));
  CHECK(base != fingerprint_of({column_major(make_parameter("a", DType::f32, {2, 3})), make_parameter("b")}));
  CHECK(fingerprint_of({make_parameter("a", DType::f32, {})}) != fingerprint_of({make_parameter("a", DType::f32, {1})}));
}

TEST_CASE("the fingerprint stays the same from version to version") {
  // Servers and workers of different builds compare it; a new value here needs a new wire version.
  CHECK(fingerprint_of({make_parameter("fc1.weight", DType::f32, {256, 784}), make_parameter("fc1.bias", DType::f32, {256})}) ==
        0xfa11122e5e4ecfb2ull);
}
