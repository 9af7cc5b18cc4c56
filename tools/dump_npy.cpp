#include "dump_npy.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/status.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace gradshm::tools {
namespace {

constexpr std::size_t kPrefixBytes = 10, kAlignment = 64;

const char* descr_of(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32: return "<f4";
    case core::DType::f64: return "<f8";
    case core::DType::f16: return "<f2";
    case core::DType::bf16: return "<u2";
  }
  return "|V1";
}

std::string tuple_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t& dim : shape) text += std::to_string(dim) + (shape.size() == 1 ? "," : &dim == &shape.back() ? "" : ", ");
  return "(" + text + ")";
}

void write_all(int fd, const std::string& content) {
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t written = write(fd, content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw core::system_error("write", written < 0 ? errno : EIO);
    done += static_cast<std::size_t>(written);
  }
}

// As a file that was simply created: mkstemp's is for its owner alone.
mode_t usual_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

void fill_and_rename(int fd, const std::string& temporary, const std::string& path, const std::string& content) {
  write_all(fd, content);
  if (fchmod(fd, usual_mode()) != 0) throw core::system_error("fchmod", errno);
  if (rename(temporary.c_str(), path.c_str()) != 0) throw core::system_error("rename", errno);
}

}  // namespace

std::string npy_of(const Dump& dump) {
  std::string header = std::string("{'descr': '") + descr_of(dump.parameter.dtype) +
                       "', 'fortran_order': " + (dump.parameter.order == core::Order::f ? "True" : "False") +
                       ", 'shape': " + tuple_of(dump.parameter.shape) + ", }";
  header.append(kAlignment - (kPrefixBytes + header.size() + 1) % kAlignment, ' ').append("\n");
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff), file += static_cast<char>(header.size() >> 8);
  return file.append(header).append(reinterpret_cast<const char*>(dump.bytes.data()), dump.bytes.size());
}

void write_file(const std::string& path, const std::string& content) {
  const std::string what = "cannot write " + core::escape(path);
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    throw core::Error(core::Status::invalid, what + ": it is there and no regular file (- is standard output)");
  std::string temporary = path + ".XXXXXX";
  const core::UniqueFd fd(mkstemp(temporary.data()));
  if (!fd) throw core::system_error(what, errno);
  try {
    fill_and_rename(fd.get(), temporary, path, content);
  } catch (const core::Error& error) {
    unlink(temporary.c_str());
    throw core::Error(error.status(), what + ": " + error.what());
  }
}

}  // namespace gradshm::tools
