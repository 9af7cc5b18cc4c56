#include "idx.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>

namespace fashion {
namespace {

constexpr std::uint32_t kImageMagic = 0x803;  // IDX: unsigned bytes, three dimensions
constexpr std::uint32_t kLabelMagic = 0x801;  // one dimension
constexpr std::uint32_t kMaxItems = 1u << 20; // bounds what a damaged header can make us allocate

class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path) {
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) fail(errno != 0 ? std::strerror(errno) : "out of memory");
  }

  void read(std::span<std::uint8_t> bytes) {
    const std::size_t got = read_some(bytes);
    if (got < bytes.size()) fail("truncated: " + std::to_string(bytes.size() - got) + " bytes are missing");
  }
  std::uint32_t read_u32() {
    std::array<std::uint8_t, 4> b{};
    read(b);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }
  // Reads to the very end, so zlib also checks the CRC.
  void expect_end() {
    std::array<std::uint8_t, 1> more{};
    if (read_some(more) != 0) fail("longer than its header says");
    int code = Z_OK;  // gzread itself reports a cut stream as a mere end
    gzerror(file_.get(), &code);
    if (code != Z_OK) fail("truncated: the end of the gzip data is missing");
  }
  [[noreturn]] void fail(const std::string& why) const { throw std::runtime_error("cannot read '" + path_ + "': " + why); }

 private:
  std::size_t read_some(std::span<std::uint8_t> bytes) {
    std::size_t got = 0;
    while (got < bytes.size()) {
      const auto chunk = static_cast<unsigned>(std::min<std::size_t>(bytes.size() - got, 1u << 24));
      const int n = gzread(file_.get(), bytes.data() + got, chunk);
      if (n < 0) fail(zlib_error());
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }
  std::string zlib_error() const {
    int code = Z_OK;
    const std::string text = gzerror(file_.get(), &code);
    return code == Z_ERRNO ? std::strerror(errno) : "damaged gzip data (" + text + ")";
  }

  struct Close {
    void operator()(gzFile_s* file) const noexcept { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

std::string hex(std::uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", value);
  return text.data();
}

std::uint32_t read_header(GzipFile& file, std::uint32_t magic, const char* what) {
  const std::uint32_t found = file.read_u32();
  if (found != magic) file.fail("not an IDX file of " + std::string(what) + ": magic " + hex(found) + " instead of " + hex(magic));
  const std::uint32_t items = file.read_u32();
  if (items == 0 || items > kMaxItems) file.fail("its header says " + std::to_string(items) + " " + what);
  return items;
}

}  // namespace

std::vector<std::uint8_t> read_images(const std::string& path) {
  GzipFile file(path);
  const std::size_t items = read_header(file, kImageMagic, "images");
  const std::uint32_t rows = file.read_u32();
  const std::uint32_t columns = file.read_u32();
  if (rows != 28 || columns != 28) file.fail("images of " + std::to_string(rows) + "x" + std::to_string(columns) + " instead of 28x28");
  std::vector<std::uint8_t> pixels(items * kPixels);
  file.read(pixels);
  file.expect_end();
  return pixels;
}

std::vector<std::uint8_t> read_labels(const std::string& path) {
  GzipFile file(path);
  std::vector<std::uint8_t> labels(read_header(file, kLabelMagic, "labels"));
  file.read(labels);
  file.expect_end();
  const auto bad = std::find_if(labels.begin(), labels.end(), [](std::uint8_t label) { return label >= kClasses; });
  if (bad != labels.end()) file.fail("label " + std::to_string(*bad) + " at " + std::to_string(bad - labels.begin()) + " is not below 10");
  return labels;
}

Dataset load_dataset(const std::string& directory, const std::string& stem) {
  const std::string prefix = directory + "/" + stem;
  Dataset data{read_images(prefix + "-images-idx3-ubyte.gz"), read_labels(prefix + "-labels-idx1-ubyte.gz")};
  const std::size_t images = data.images.size() / kPixels;
  if (images != data.size())
    throw std::runtime_error("'" + prefix + "-*': " + std::to_string(images) + " images but " + std::to_string(data.size()) + " labels");
  return data;
}

}  // namespace fashion
