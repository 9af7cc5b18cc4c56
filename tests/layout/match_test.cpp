#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {
Caught mismatch(const std::vector<Parameter>& theirs, const std::vector<Parameter>& mine, bool partial = false) {
  return caught([&] { check_match(make_manifest(theirs), make_manifest(mine), partial, "default"); });
}
std::vector<Parameter> numbered(int count, const std::string& prefix = "p") {
  std::vector<Parameter> parameters;
  for (int i = 0; i < count; ++i) parameters.push_back(make_parameter(prefix + std::to_string(i)));
  return parameters;
}
}  // namespace

TEST_CASE("manifests match by name in whatever order they were registered") {  // pytorch#1489
  const auto p1 = make_parameter("p1", DType::f32, {3, 2});
  const auto p2 = make_parameter("p2", DType::f32, {4, 3});
  CHECK(mismatch({p1, p2}, {p2, p1}).status == Status::ok);
  CHECK(mismatch({make_parameter("p1"), make_parameter("p2")}, {make_parameter("p2"), make_parameter("p1")}).status == Status::ok);
  const Manifest file = load_tsv(table_path("resnet34"));
  std::vector<Parameter> shuffled = file.parameters();
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  CHECK_NOTHROW(check_match(file, make_manifest(shuffled), false, "default"));
}

TEST_CASE("a transposed shape is refused with both shapes, the count and the command to compare") {  // ChatDoctor#49
  auto theirs = numbered(7);
  auto mine = numbered(7);
  theirs.push_back(make_parameter("fc1.weight", DType::f32, {256, 784}));
  mine.push_back(make_parameter("fc1.weight", DType::f32, {784, 256}));
  const Caught refusal = mismatch(theirs, mine);
  CHECK(refusal.status == Status::layout_mismatch);
  CHECK(refusal.sentence ==
        "parameter 'fc1.weight' is f32[256,784] there and f32[784,256] here (1 of 8 parameters differs). Layouts must match by name, "
        "dtype, shape and order; compare them with: gradshm layout diff default my.tsv");
}

TEST_CASE("manifests of 128 and 0 parameters are refused with both counts and the first that is missing") {  // ChatDoctor#49
  const Caught refusal = mismatch(numbered(128), {});
  CHECK(refusal.says("128 parameters there and 0 here; parameter 'p0' is missing here (128 of 128 parameters differ)"));
  CHECK(mismatch({}, numbered(128)).says("0 parameters there and 128 here; parameter 'p0' is not known there (128 of 128"));
}

TEST_CASE("the first difference is the first in their registration order") {
  const std::vector<Parameter> theirs{make_parameter("z", DType::f32, {3}), make_parameter("m"), make_parameter("a", DType::f32, {3})};
  const std::vector<Parameter> mine{make_parameter("a"), make_parameter("x"), make_parameter("z")};
  CHECK(mismatch(theirs, mine).says(
      "parameter 'z' is f32[3] there and f32[2] here, 'm' is missing here, 'x' is not known there (4 of 4 parameters differ)"));
  CHECK(mismatch({theirs[1], theirs[0]}, {mine[2]}).says("2 parameters there and 1 here; parameter 'm' is missing here (2 of 2"));
}

TEST_CASE("a scalar and a vector of one element differ, as do dtypes") {
  CHECK(mismatch({make_parameter("a", DType::f32, {})}, {make_parameter("a", DType::f32, {1})}).says("f32[] there and f32[1] here"));
  CHECK(mismatch({make_parameter("a", DType::f16)}, {make_parameter("a", DType::f32)}).says("f16[2] there and f32[2] here"));
}

TEST_CASE("column-major against row-major is refused and both orders are named") {
  const auto rows = make_parameter("a", DType::f32, {5, 3});
  CHECK(mismatch({column_major(rows)}, {rows}).says("is f32[5,3] column-major there and f32[5,3] row-major here"));
  CHECK(mismatch({rows}, {column_major(rows)}).says("is f32[5,3] row-major there and f32[5,3] column-major here"));
  CHECK(mismatch({column_major(rows)}, {column_major(rows)}).status == Status::ok);
}

TEST_CASE("a partial worker may leave parameters out but not bring new or different ones") {
  CHECK(mismatch(numbered(5), numbered(3), true).status == Status::ok);
  CHECK(mismatch(numbered(5), numbered(5), true).status == Status::ok);
  CHECK(mismatch(numbered(3), numbered(5), true).says("parameter 'p3' is not known there (2 of 5 parameters differ)"));
  CHECK(mismatch(numbered(3), {make_parameter("p1", DType::f64)}, true).says("(1 of 3 parameters differs)"));
}

TEST_CASE("tied parameters match whichever name comes first, and forgotten aliases are pointed out") {
  CHECK(mismatch({tied("a", {"b"})}, {tied("b", {"a"})}).status == Status::ok);
  CHECK(mismatch({tied("a", {"b"})}, {make_parameter("b")}).says("'b' is not known there (there it is another name of 'a'; register"));
  CHECK(mismatch({make_parameter("b")}, {tied("a", {"b"})}).says("'b' is missing here (here it is another name of 'a'; register"));
}

TEST_CASE("names that match without a wrapper's prefix are pointed out") {
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    CAPTURE(prefix);
    const std::string hint = std::string("; without the prefix '") + prefix + "' the names ";
    CHECK(mismatch(numbered(4), numbered(4, std::string(prefix) + "p")).says(hint + "here would match"));
    CHECK(mismatch(numbered(4, std::string(prefix) + "p"), numbered(4)).says(hint + "there would match"));
    CHECK(mismatch(numbered(4, std::string(prefix) + "p"), numbered(2), true).says(hint + "there would match"));
  }
  CHECK_FALSE(mismatch(numbered(4), numbered(4, "module.q")).says("prefix"));
  CHECK_FALSE(mismatch(numbered(4), numbered(3, "module.p")).says("prefix"));
}

TEST_CASE("two names that meet in one id are refused, not summed") {
  const auto collide = [](std::string_view) -> std::uint64_t { return 42; };
  Manifest theirs(collide);
  Manifest mine(collide);
  theirs.add(make_parameter("a"));
  mine.add(make_parameter("b"));
  CHECK(caught([&] { check_match(theirs, mine, false, "x"); }).says("'a' there and 'b' here have one id (000000000000002a)"));
}

TEST_CASE("a copy always matches and a copy with one change never does") {
  CHECK(rc::check([] {
    const Manifest theirs = any_manifest();
    std::vector<Parameter> mine = theirs.parameters();
    std::reverse(mine.begin(), mine.end());
    check_match(theirs, make_manifest(mine), false, "default");
    Parameter& changed = mine[*rc::gen::inRange<std::size_t>(0, mine.size())];
    if (*rc::gen::arbitrary<bool>()) {
      changed.shape.push_back(7);
    } else {
      changed.aliases.emplace_back("!");  // smaller than all other names: another id
    }
    RC_ASSERT(caught([&] { check_match(theirs, make_manifest(mine), false, "default"); }).status == Status::layout_mismatch);
  }));
}
