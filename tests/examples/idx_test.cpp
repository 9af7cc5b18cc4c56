#include "fashion/idx.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace {

namespace fs = std::filesystem;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "gradshm-idx-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TemporaryDirectory() { fs::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::string path() const { return path_; }

 private:
  fs::path path_;
};

std::string big_endian(std::uint32_t value) {
  std::string bytes(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (24 - 8 * i) & 0xff);
  return bytes;
}

std::string images(std::uint32_t count, std::uint32_t rows = 28, std::uint32_t columns = 28) {
  std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes.push_back(static_cast<char>(i * 7 % 251));
  return bytes;
}

std::string labels(const std::string& values) {
  return big_endian(0x801) + big_endian(static_cast<std::uint32_t>(values.size())) + values;
}

void write_gzip(const std::string& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

void cut_file(const std::string& path, std::uintmax_t bytes) { fs::resize_file(path, fs::file_size(path) - bytes); }

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("images and labels come out as they were written") {
  const TemporaryDirectory directory;
  write_gzip(directory.file("train-images-idx3-ubyte.gz"), images(3));
  write_gzip(directory.file("train-labels-idx1-ubyte.gz"), labels({0, 9, 5}));
  const fashion::Dataset data = fashion::load_dataset(directory.path(), "train");
  CHECK(data.size() == 3);
  CHECK(data.labels == std::vector<std::uint8_t>{0, 9, 5});
  REQUIRE(data.images.size() == 3 * fashion::kPixels);
  CHECK(data.images[1000] == 1000 * 7 % 251);
}

TEST_CASE("a missing file is named, with the system's reason") {
  const std::string error = error_of([] { (void)fashion::read_images("/nonexistent/train-images-idx3-ubyte.gz"); });
  CHECK(error == "cannot read '/nonexistent/train-images-idx3-ubyte.gz': No such file or directory");
}

TEST_CASE("a file that ends early says how much is missing") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("images.gz");
  const std::string whole = images(2);
  write_gzip(path, whole.substr(0, whole.size() - 100));
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "truncated: 100 bytes are missing"));
  write_gzip(path, whole.substr(0, 6));
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "truncated: 2 bytes are missing"));
  write_gzip(path, "");
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "truncated: 4 bytes are missing"));
}

TEST_CASE("a gzip stream that was cut is refused, even where only its checksum is gone") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("labels.gz");
  for (const std::uintmax_t bytes : {1u, 8u, 10u}) {
    write_gzip(path, labels(std::string(5000, '\3')));
    cut_file(path, bytes);
    CHECK(contains(error_of([&] { (void)fashion::read_labels(path); }), "cannot read '" + path + "': "));
  }
}

TEST_CASE("damaged gzip data is reported as such") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("images.gz");
  write_gzip(path, images(20));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
  file.write("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  file.close();
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "cannot read '" + path + "': "));
}

TEST_CASE("a wrong magic number is shown beside the right one") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("labels.gz");
  write_gzip(path, labels({1, 2}));
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }),
                 "not an IDX file of images: magic 0x00000801 instead of 0x00000803"));
  write_gzip(path, "#!/bin/sh");
  CHECK(contains(error_of([&] { (void)fashion::read_labels(path); }), "not an IDX file of labels: magic 0x23212f62"));
}

TEST_CASE("a header that cannot be true allocates nothing") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("images.gz");
  write_gzip(path, big_endian(0x803) + big_endian(0xffffffff) + big_endian(28) + big_endian(28));
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "its header says 4294967295 images"));
  write_gzip(path, images(0));
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "its header says 0 images"));
  write_gzip(path, images(1, 32, 32));
  CHECK(contains(error_of([&] { (void)fashion::read_images(path); }), "images of 32x32 instead of 28x28"));
}

TEST_CASE("a file longer than its header says, labels out of range and unequal counts are refused") {
  const TemporaryDirectory directory;
  const std::string image_path = directory.file("t10k-images-idx3-ubyte.gz"), label_path = directory.file("t10k-labels-idx1-ubyte.gz");
  write_gzip(image_path, images(2) + "x");
  CHECK(contains(error_of([&] { (void)fashion::read_images(image_path); }), "longer than its header says"));
  write_gzip(label_path, labels({1, 10}));
  CHECK(contains(error_of([&] { (void)fashion::read_labels(label_path); }), "label 10 at 1 is not below 10"));
  write_gzip(image_path, images(2));
  write_gzip(label_path, labels({1}));
  CHECK(contains(error_of([&] { (void)fashion::load_dataset(directory.path(), "t10k"); }), "2 images but 1 labels"));
}
