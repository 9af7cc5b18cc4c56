#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "helpers.hpp"

using namespace gradshm::core;

namespace {

// A directory that goes with the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "gradshm-load-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove_all(path_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Caught refusal(const std::string& path) {
  return caught([&] { (void)load_manifest(path); });
}

const std::string kSafetensors = std::string("\x39\0\0\0\0\0\0\0", 8) +
                                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0, 8]}}  " + "12345678";

}  // namespace

TEST_CASE("a file's name decides how it is read") {
  const Scratch scratch;
  CHECK(load_manifest(table_path("resnet50")).size() == 161);
  CHECK(load_manifest(scratch.write("a.safetensors", kSafetensors)).size() == 1);
  CHECK(refusal(scratch.write("a.bin", kSafetensors)).says("a.bin, line 1: expected the header line"));
  CHECK(load_safetensors(scratch.path("a.bin")).size() == 1);
}

TEST_CASE("a safetensors file that was cut is refused") {
  const Scratch scratch;
  for (std::size_t size = 0; size < kSafetensors.size(); ++size) {
    CHECK(refusal(scratch.write("a.safetensors", kSafetensors.substr(0, size))).status == Status::bad_layout);
  }
}

TEST_CASE("a path that cannot be read is refused with path and reason") {
  const Scratch scratch;
  const Caught missing = refusal(scratch.path("none.tsv"));
  CHECK(missing.status == Status::not_found);
  CHECK(missing.sentence == "cannot read '" + scratch.path("none.tsv") + "': No such file or directory");
  CHECK(refusal("").status == Status::not_found);
  CHECK(refusal(table_path("resnet34") + "/x").status == Status::not_found);
  CHECK(refusal(table_path("resnet34") + std::string("\0x", 2)).status == Status::not_found);
  if (::geteuid() != 0) {
    const std::string path = scratch.write("secret.tsv", "");
    ::chmod(path.c_str(), 0);
    CHECK(refusal(path).status == Status::permission);
  }
}

TEST_CASE("directories, devices and pipes are refused without waiting") {
  const Scratch scratch;
  CHECK(refusal(scratch.path(".")).says("is a directory"));
  CHECK(refusal("/dev/zero").says("is a device, pipe or socket"));
  REQUIRE(::mkfifo(scratch.path("pipe").c_str(), 0600) == 0);
  CHECK(refusal(scratch.path("pipe")).says("is a device, pipe or socket"));
  for (const char* path : {"/dev/null", "/"}) CHECK(refusal(path).status == Status::bad_layout);
}

TEST_CASE("files that are too large are refused before they are read") {
  const Scratch scratch;
  const std::string table = scratch.write("a.tsv", "");
  std::filesystem::resize_file(table, 256'000'001);
  CHECK(refusal(table).says("has 256.0 MB; a table of parameters has at most 256 MB"));
  const std::string tensors = scratch.write("a.safetensors", "");
  std::filesystem::resize_file(tensors, std::uint64_t{1} << 40);  // sparse
  CHECK(refusal(tensors).says("does not begin with {"));
}
