#include "layout/dtype.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace gradshm::core;

TEST_CASE("every dtype is parsed from each of its names and from its code") {
  struct Row {
    DType dtype;
    std::uint64_t bytes;
    const char *name, *long_name, *safetensors_name;
  };
  for (const Row& row : {Row{DType::f32, 4, "f32", "float32", "F32"}, Row{DType::f64, 8, "f64", "float64", "F64"},
                         Row{DType::f16, 2, "f16", "float16", "F16"}, Row{DType::bf16, 2, "bf16", "bfloat16", "BF16"}}) {
    CAPTURE(row.name);
    CHECK(element_bytes(row.dtype) == row.bytes);
    CHECK(std::string(dtype_name(row.dtype)) == row.name);
    CHECK(std::string(dtype_long_name(row.dtype)) == row.long_name);
    for (const char* text : {row.name, row.long_name, row.safetensors_name}) CHECK(parse_dtype(text) == row.dtype);
    CHECK(dtype_of_code(static_cast<int>(row.dtype)) == row.dtype);
  }
}

TEST_CASE("what is no dtype is none") {
  for (const char* text : {"", "f", "F", "float", "Float32", "f32 ", "int8", "I64", "F8_E4M3"}) CHECK_FALSE(parse_dtype(text));
  for (const int code : {-1, 0, 5, 257}) CHECK_FALSE(dtype_of_code(code));
  CHECK(element_bytes(static_cast<DType>(77)) == 0);
  CHECK(std::string(dtype_name(static_cast<DType>(77))) == "?");
}
