#include "dump.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "dump_npy.hpp"
#include "snapshots.hpp"

using namespace gradshm::tools;
using namespace gradshm::core;

namespace {

template <class T>
Dump dump_of(DType dtype, const std::vector<T>& values, std::vector<std::int64_t> shape) {
  Dump dump;
  dump.instance = "default";
  dump.parameter = parameter("w", std::move(shape));
  dump.parameter.dtype = dtype;
  check_parameter(dump.parameter);
  dump.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(dump.bytes.data(), values.data(), dump.bytes.size());
  dump.round = 7, dump.result = ResultPart{"mean", 2, 10};
  return dump;
}

// Prefix, header without padding.
std::string header_of(const Dump& dump) {
  const std::string file = npy_of(dump);
  std::string header = file.substr(10, file.find('\n') - 10);
  return header.substr(0, header.find_last_not_of(' ') + 1);
}

}  // namespace

TEST_CASE("values read back from their shortest text are the same bits") {
  const std::vector<float> values{0.1f, 1.0f / 3, 1e-45f, 3.4028235e38f, -0.0f};
  const Dump dump = dump_of(DType::f32, values, {5});
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const float back = std::strtof(value_text(dump, i).c_str(), nullptr);
    CHECK(std::memcmp(&back, &values[i], sizeof back) == 0);
  }
  CHECK(value_text(dump, 0) == "0.1");
  CHECK(value_text(dump, 4) == "-0");
  CHECK(value_text(dump_of(DType::f64, std::vector<double>{0.1}, {}), 0) == "0.1");
}

TEST_CASE("a NaN is nan whatever its sign") {
  CHECK(value_text(dump_of(DType::f32, std::vector<float>{-std::numeric_limits<float>::quiet_NaN()}, {1}), 0) == "nan");
  CHECK(value_text(dump_of(DType::bf16, std::vector<std::uint16_t>{0xffff}, {1}), 0) == "nan");
}

TEST_CASE("large values do not overflow the norm on the way") {
  const Stats stats = stats_of(dump_of(DType::f64, std::vector<double>{3e300, 4e300}, {2}));
  CHECK(stats.norm == doctest::Approx(5e300));
  CHECK(stats.mean == doctest::Approx(3.5e300));
}

TEST_CASE("of no finite element there is no minimum") {
  const Dump dump = dump_of(DType::f32, std::vector<float>{std::nanf(""), std::nanf("")}, {2});
  CHECK(stats_of(dump).nan == 2);
  CHECK(nlohmann::json::parse(dump_json_line(dump, false))["stats"]["min"].is_null());
  CHECK(dump_text(dump, false).find("min") == std::string::npos);
}

TEST_CASE("a result that nobody had is called absent") {
  Dump dump = dump_of(DType::f32, std::vector<float>{0}, {1});
  dump.result->count = 0;
  CHECK(dump_text(dump, false).find("absent, no worker had it") != std::string::npos);
}

TEST_CASE("the header of a .npy file is a multiple of 64 bytes for every shape") {
  CHECK(header_of(dump_of(DType::f32, std::vector<float>(6), {2, 3})) == "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  CHECK(header_of(dump_of(DType::f64, std::vector<double>(1), {})) == "{'descr': '<f8', 'fortran_order': False, 'shape': (), }");
  CHECK(header_of(dump_of(DType::f16, std::vector<std::uint16_t>(1), {1})) == "{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }");
  for (std::size_t dims = 0; dims <= kMaxDims; ++dims) {
    const std::string file = npy_of(dump_of(DType::bf16, std::vector<std::uint16_t>(1), std::vector<std::int64_t>(dims, 1)));
    CHECK((file.size() - 2) % 64 == 0);
    CHECK(file.substr(file.size() - 3, 1) == "\n");
    CHECK(static_cast<std::size_t>(static_cast<unsigned char>(file[8]) + 256 * static_cast<unsigned char>(file[9])) + 12 == file.size());
  }
}

TEST_CASE("the closest names are those with the fewest edits, and those that contain it") {
  const Layout layout = layout_of({parameter("encoder.weight", {1}), parameter("decoder.weight", {1}), parameter("encoder.bias", {1}), parameter("x", {1})});
  CHECK(closest_names(layout, "encoder.wieght").front() == "encoder.weight");
  CHECK(closest_names(layout, "bias").front() == "encoder.bias");
  CHECK(closest_names(layout, "y").front() == "x");
  CHECK(closest_names(layout, "").size() == 3);
  CHECK(closest_names(layout_of({parameter("only", {1})}), "other") == std::vector<std::string>{"only"});
}

TEST_CASE("an alias may be what was meant") {
  Parameter tied = parameter("wte.weight", {1});
  tied.aliases = {"lm_head.weight"};
  CHECK(closest_names(layout_of({tied}), "lm_hed.weight").front() == "lm_head.weight");
}
