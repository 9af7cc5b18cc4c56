#include "layout/parameter.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {
Caught refusal(Parameter parameter) {
  return caught([&] { check_parameter(parameter); });
}
Parameter checked(Parameter parameter) {
  check_parameter(parameter);
  return parameter;
}
}  // namespace

TEST_CASE("an id is XXH3-64 of the name with seed 0") {
  CHECK(parameter_id("") == 0x2d06800538d394c2ull);  // published test vector
  CHECK(parameter_id("conv1.weight") != parameter_id("conv1.bias"));
  CHECK(checked(make_parameter("conv1.weight")).id == parameter_id("conv1.weight"));
}

TEST_CASE("a tied parameter has the same id whichever of its names comes first") {
  const auto id = parameter_id("decoder.weight");
  CHECK(checked(tied("lm_head.weight", {"embed.weight", "decoder.weight"})).id == id);
  CHECK(checked(tied("decoder.weight", {"lm_head.weight", "embed.weight"})).id == id);
  CHECK(checked(tied("\xc3\xa4", {"z"})).id == parameter_id("z"));  // smallest by unsigned bytes
}

TEST_CASE("the number of elements follows from the shape, and a scalar has one") {
  CHECK(checked(make_parameter("a", DType::f32, {})).numel == 1);
  CHECK(checked(make_parameter("a", DType::f32, {1})).numel == 1);
  CHECK(checked(make_parameter("a", DType::f32, {0, 10})).numel == 0);
  CHECK(checked(make_parameter("a", DType::f32, {3, 4, 5})).numel == 60);
  CHECK(checked(make_parameter("a", DType::f32, std::vector<std::int64_t>(16, 1))).numel == 1);
}

TEST_CASE("a scalar and a vector of one element are described differently") {
  CHECK(describe(make_parameter("a", DType::f32, {})) == "f32[]");
  CHECK(describe(make_parameter("a", DType::bf16, {1})) == "bf16[1]");
  CHECK(describe(column_major(make_parameter("a", DType::f64, {256, 784}))) == "f64[256,784] column-major");
}

TEST_CASE("column-major becomes row-major where both are the same bytes") {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {5}, {1, 5}, {5, 1, 1}, {0, 4, 4}}) {
    CHECK(checked(column_major(make_parameter("a", DType::f32, shape))).order == Order::c);
  }
  CHECK(checked(column_major(make_parameter("a", DType::f32, {5, 3}))).order == Order::f);
  CHECK(checked(column_major(make_parameter("a", DType::f32, {2, 1, 2}))).order == Order::f);
}

TEST_CASE("names are UTF-8 of 1 to 1,024 bytes without control characters") {
  CHECK(refusal(make_parameter("schicht.größe.重み")).status == Status::ok);
  CHECK(refusal(make_parameter(std::string(1024, 'x'))).status == Status::ok);
  for (const std::string& name : {std::string(), std::string(1025, 'x'), std::string("a\nb"), std::string("a\0b", 3), std::string("\x7f"),
                                  std::string("\xc2\x85"), std::string("a\xff"), std::string("\xed\xa0\x80")}) {
    CAPTURE(name);
    CHECK(refusal(make_parameter(name)).status == Status::bad_layout);
    CHECK(refusal(tied("a", {name})).status == Status::bad_layout);
    Parameter grouped = make_parameter("a");
    grouped.group = name;
    CHECK(refusal(grouped).status == (name.empty() ? Status::ok : Status::bad_layout));
  }
  CHECK(refusal(make_parameter("a\x1b[31m")).sentence == "parameter 'a\\x1b[31m' has control characters in its name");
  CHECK(refusal(make_parameter(std::string(100'000, 'x'))).sentence.size() < 300);
}

TEST_CASE("aliases are at most 255 and all different") {
  std::vector<std::string> aliases;
  for (int i = 0; i < 255; ++i) aliases.push_back("alias" + std::to_string(i));
  CHECK(refusal(tied("a", aliases)).status == Status::ok);
  aliases.emplace_back("one more");
  CHECK(refusal(tied("a", aliases)).says("has 256 aliases"));
  CHECK(refusal(tied("a", {"b", "c", "b"})).says("'b' twice"));
  CHECK(refusal(tied("a", {"a"})).says("'a' twice"));
}

TEST_CASE("impossible shapes, dtypes and orders are refused with the parameter's name") {
  CHECK(refusal(make_parameter("net.w", DType::f32, {3, -1})).sentence == "parameter 'net.w' has the negative dimension -1");
  CHECK(refusal(make_parameter("a", DType::f32, std::vector<std::int64_t>(17, 1))).says("has 17 dimensions"));
  CHECK(refusal(make_parameter("a", static_cast<DType>(9))).says("unknown dtype code 9"));
  Parameter parameter = make_parameter("a");
  parameter.order = static_cast<Order>(2);
  CHECK(refusal(parameter).says("unknown order code 2"));
}

TEST_CASE("a shape whose bytes reach 2^62 is refused, also where a multiplication would wrap") {
  const std::int64_t k31 = std::int64_t{1} << 31;
  CHECK(refusal(make_parameter("a", DType::f32, {k31, 1 << 29})).says("2^62 bytes or more"));
  CHECK(refusal(make_parameter("a", DType::f32, {k31 - 1, 1 << 29})).status == Status::ok);
  CHECK(refusal(make_parameter("a", DType::f64, {INT64_MAX})).status == Status::bad_layout);
  CHECK(refusal(make_parameter("a", DType::f16, {k31 * 2, k31 * 2})).status == Status::bad_layout);  // 2^64
  CHECK(refusal(make_parameter("a", DType::f16, {0, k31 * 2, k31 * 2})).status == Status::bad_layout);
}
