#include <doctest/doctest.h>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {

std::string with_length(std::uint64_t length, const std::string& json) {
  std::string text;
  for (int shift = 0; shift < 64; shift += 8) text.push_back(static_cast<char>(length >> shift & 0xff));
  return text + json;
}

Manifest parsed(const std::string& json, std::uint64_t data_bytes) {
  return parse_safetensors(with_length(json.size(), json), 8 + json.size() + data_bytes, "my.safetensors");
}
Caught refusal(const std::string& json, std::uint64_t data_bytes = 8) {
  return caught([&] { (void)parsed(json, data_bytes); });
}
std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return '"' + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + '}';
}
// Of one object {"a": <fields>}.
Caught fields_refusal(const std::string& fields) { return refusal("{\"a\":{" + fields + "}}"); }

}  // namespace

TEST_CASE("tensors are read in the order of their data, whatever the order of the header") {
  const Manifest manifest = parsed("{" + tensor("late", "BF16", "[2,2]", "[12,20]") + "," + tensor("early", "F32", "[3]", "[0,12]") +
                                       ",\"__metadata__\":{\"format\":\"pt\"}}   ",
                                   20);
  REQUIRE(manifest.size() == 2);
  CHECK(manifest.parameters()[0].name == "early");
  CHECK(describe(manifest.parameters()[0]) == "f32[3]");
  CHECK(describe(manifest.parameters()[1]) == "bf16[2,2]");
}

TEST_CASE("empty tensors, scalars, empty headers and escapes are read") {
  const Manifest manifest = parsed("{" + tensor("z", "F32", "[0,4]", "[0,0]") + "," + tensor("a", "F64", "[]", "[0,8]") + "," +
                                       tensor("b", "F16", "[0]", "[0,0]") + "," + tensor("\\u00e4", "F16", "[0]", "[8,8]") + "}",
                                   8);
  REQUIRE(manifest.size() == 4);
  CHECK(manifest.parameters()[0].name == "b");
  CHECK(manifest.parameters()[1].name == "z");
  CHECK(manifest.parameters()[2].shape.empty());
  CHECK(manifest.parameters()[3].name == "ä");
  CHECK(parsed("{}", 0).size() == 0);
}

TEST_CASE("a file that is too short for its header is refused") {
  for (std::size_t size = 0; size < 8; ++size) {
    CHECK(caught([&] { (void)parse_safetensors(std::string(size, '\1'), size, "s"); }).says("begins with 8 bytes of length"));
  }
  const auto lengths = [](std::uint64_t length, std::uint64_t file_bytes) {
    return caught([&] { (void)parse_safetensors(with_length(length, "{}"), file_bytes, "s"); });
  };
  CHECK(lengths(3, 10).says("its header has 3 bytes, but the file has 10; is it complete?"));
  CHECK(lengths(3, 11).says("ends within its header"));
  CHECK(lengths(100'000'001, UINT64_MAX).says("at most 100 MB"));
  CHECK(lengths(UINT64_MAX, UINT64_MAX).says("at most 100 MB"));
  CHECK(lengths(0, 10).says("does not begin with {"));
  CHECK(lengths(2, 10).status == Status::ok);
}

TEST_CASE("a header that is no JSON object is refused") {
  for (const char* json : {"[]", "null", "1", "\"a\"", " {}", "x"}) CHECK(refusal(json).says("does not begin with {"));
  for (const char* json : {"{", "{\"a\"", "{\"a\":", "{}}", "{} x", "{\"a\":{}", "{\"\xff\":1}", "{\"\\ud800\":1}", "{a:1}", "{//\n}", "{,}"}) {
    CAPTURE(json);
    CHECK(refusal(json, 0).status == Status::bad_layout);
  }
  CHECK(refusal("{\"a\" 1}", 0).says("no JSON at byte 14 of the file: syntax error"));
  CHECK(refusal("{} x", 0).says("no JSON at byte 12 of the file"));
  CHECK(refusal("{" + std::string(1'000'000, 'x')).sentence.size() < 500);
}

TEST_CASE("nesting is refused where it begins, however deep it is") {
  const auto repeated = [](const char* text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  CHECK(refusal(repeated("{\"a\":", 1'000'000)).says("tensor 'a' has the unknown key 'a'"));
  CHECK(refusal("{\"a\":" + repeated("[", 1'000'000)).says("an array where none belongs"));
  CHECK(fields_refusal("\"shape\":" + repeated("[", 1'000'000)).says("an array in its shape"));
  CHECK(refusal("{\"__metadata__\":{\"a\":" + repeated("[", 1'000'000)).says("__metadata__ has an array"));
  CHECK(refusal("{\"__metadata__\":{\"a\":{").says("__metadata__ has an object"));
}

TEST_CASE("a key that is there twice is refused") {
  const std::string a = tensor("a", "F32", "[1]", "[0,4]");
  CHECK(refusal("{" + a + "," + a + "}").says("the key 'a' is there twice"));
  CHECK(refusal("{\"__metadata__\":{},\"__metadata__\":{}}").says("the key '__metadata__' is there twice"));
  CHECK(refusal("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}").says("the key 'k' of __metadata__ is there twice"));
  CHECK(fields_refusal("\"shape\":[1],\"shape\":[2]").says("tensor 'a' has the key 'shape' twice"));
}

TEST_CASE("values of the wrong type are refused with the tensor's name") {
  for (const char* value : {"1", "null", "true", "\"F32\"", "[]", "1.5", "-1"}) {
    CAPTURE(value);
    CHECK(refusal(std::string("{\"a\":") + value + "}").says("tensor 'a' has "));
  }
  CHECK(fields_refusal("\"dtype\":1").says("tensor 'a' has the number 1"));
  CHECK(fields_refusal("\"dtype\":[1]").says("an array"));
  CHECK(fields_refusal("\"shape\":1").says("the number 1"));
  CHECK(fields_refusal("\"shape\":\"1\"").says("a string"));
  CHECK(fields_refusal("\"shape\":{}").says("an object"));
  CHECK(fields_refusal("\"shape\":[\"1\"]").says("a string in its shape"));
  for (const char* dim : {"-1", "1.0", "1e3", "null", "true", "99999999999999999999"}) {
    CAPTURE(dim);
    CHECK(fields_refusal(std::string("\"shape\":[") + dim + "]").says("in its shape; expected integers of at least 0"));
    CHECK(fields_refusal(std::string("\"data_offsets\":[0,") + dim + "]").says("in its data_offsets"));
  }
  CHECK(fields_refusal("\"shape\":[9223372036854775808]").says("the impossible dimension 9223372036854775808"));
  CHECK(fields_refusal("\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]").says("more than 16 dimensions"));
  CHECK(fields_refusal("\"data_offsets\":[0]").says("data_offsets of 1 number"));
  CHECK(fields_refusal("\"data_offsets\":[]").says("data_offsets of 0 numbers"));
  CHECK(fields_refusal("\"data_offsets\":[0,1,2]").says("the number 2 in its data_offsets"));
  CHECK(refusal("{\"__metadata__\":{\"k\":1}}").says("__metadata__ has the number 1; expected only strings"));
  CHECK(refusal("{\"__metadata__\":\"k\"}").says("a string"));
}

TEST_CASE("missing and unknown keys are refused") {
  CHECK(fields_refusal("").says("tensor 'a' has not all of dtype, shape and data_offsets"));
  CHECK(fields_refusal("\"dtype\":\"F32\",\"shape\":[2]").says("not all of"));
  CHECK(fields_refusal("\"colour\":1").says("the unknown key 'colour'"));
}

TEST_CASE("dtypes that cannot be reduced are refused by name") {
  for (const char* dtype : {"I64", "BOOL", "F8_E4M3", "float32", "f32", ""}) {
    CHECK(refusal("{" + tensor("a", dtype, "[1]", "[0,8]") + "}").says(std::string("tensor 'a' has the dtype '") + dtype + "', which"));
  }
}

TEST_CASE("names that no parameter can have are refused") {
  CHECK(refusal("{" + tensor("", "F64", "[1]", "[0,8]") + "}").says("empty name"));
  CHECK(refusal("{" + tensor("a\\u0000", "F64", "[1]", "[0,8]") + "}").says("control characters"));
  CHECK(refusal("{" + tensor(std::string(1025, 'a'), "F64", "[1]", "[0,8]") + "}").says("1,025 bytes"));
}

TEST_CASE("data that overlaps, leaves a hole, leaves the file or has the wrong size is refused") {
  const auto two = [](const char* a, const char* b, std::uint64_t data_bytes) {
    return refusal("{" + tensor("a", "F32", "[1]", a) + "," + tensor("b", "F32", "[1]", b) + "}", data_bytes);
  };
  CHECK(two("[0,4]", "[4,8]", 8).status == Status::ok);
  CHECK(two("[0,4]", "[2,6]", 6).says("tensor 'b' (bytes 2 to 6 of the data) overlaps the one before it, which ends at 4"));
  CHECK(two("[0,4]", "[0,4]", 4).says("overlaps"));
  CHECK(two("[0,4]", "[5,9]", 9).says("tensor 'b' (bytes 5 to 9 of the data) does not follow on the one before it, which ends at 4"));
  CHECK(two("[4,8]", "[8,12]", 12).says("tensor 'a' (bytes 4 to 8 of the data) does not follow"));
  CHECK(two("[0,4]", "[4,8]", 7).says("reaches beyond the file, which has 7 bytes of data"));
  CHECK(two("[0,4]", "[4,8]", 9).says("the last 1 byte of the file belong"));
  CHECK(two("[0,4]", "[8,4]", 8).says("ends before it begins"));
  CHECK(two("[0,4]", "[4,9]", 9).says("tensor 'b' (bytes 4 to 9 of the data) is f32[1], which has 4 bytes"));
  CHECK(two("[0,4]", "[4,18446744073709551615]", 8).says("reaches beyond"));
}

TEST_CASE("arbitrary and damaged headers are read or refused") {
  const std::string json =
      "{\"__metadata__\":{\"k\":\"v\"}," + tensor("a", "F32", "[1,2]", "[0,8]") + "," + tensor("b", "F16", "[]", "[8,10]") + "}";
  CHECK(refusal(json, 10).status == Status::ok);
  for (std::size_t size = 0; size < json.size(); ++size) CHECK(refusal(json.substr(0, size), 10).status == Status::bad_layout);
  for (std::size_t at = 0; at < json.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      std::string changed = json;
      changed[at] = static_cast<char>(changed[at] ^ change);
      const Status status = refusal(changed, 10).status;
      CHECK((status == Status::ok || status == Status::bad_layout));
    }
  }
  CHECK(rc::check([](const std::string& text) { (void)refusal("{" + text); }));
}
