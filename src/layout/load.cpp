// Reads manifests from files; the only part of this layer that asks the kernel.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/unique_fd.hpp"
#include "layout/manifest.hpp"
#include "layout/names.hpp"
#include "layout/safetensors.hpp"

namespace gradshm::core {
namespace {

constexpr std::uint64_t kMaxTsvBytes = 256'000'000;

[[noreturn]] void fail(const std::string& path, int error_number) {
  const std::string sentence = "cannot read " + in_quotes(path) + ": " + std::generic_category().message(error_number);
  if (error_number == ENOENT || error_number == ENOTDIR) throw Error(Status::not_found, sentence);
  throw system_error("cannot read " + in_quotes(path), error_number);
}

struct File {
  UniqueFd fd;
  std::uint64_t bytes = 0;
};

File open_file(const std::string& path) {
  if (path.find('\0') != std::string::npos) fail(path, ENOENT);
  // Not blocking: opening a pipe would wait for a writer.
  File file{UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), 0};
  struct stat status{};
  if (!file.fd || ::fstat(file.fd.get(), &status) != 0) fail(path, errno);
  if (S_ISDIR(status.st_mode)) throw Error(Status::bad_layout, in_quotes(path) + " is a directory; expected a file");
  if (!S_ISREG(status.st_mode)) throw Error(Status::bad_layout, in_quotes(path) + " is a device, pipe or socket; expected a file");
  file.bytes = static_cast<std::uint64_t>(status.st_size);
  return file;
}

// Up to `bytes`; fewer if the file ends before.
std::string read_up_to(const File& file, std::uint64_t bytes, const std::string& path) {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::pread(file.fd.get(), text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace

Manifest load_tsv(const std::string& path) {
  const File file = open_file(path);
  if (file.bytes > kMaxTsvBytes) {
    throw Error(Status::bad_layout, in_quotes(path) + " has " + format_bytes(file.bytes) + "; a table of parameters has at most 256 MB");
  }
  return parse_tsv(read_up_to(file, file.bytes, path), path);
}

Manifest load_safetensors(const std::string& path) {
  const File file = open_file(path);
  const std::string prefix = read_up_to(file, std::min<std::uint64_t>(file.bytes, kSafetensorsPrefixBytes), path);
  const std::uint64_t header_bytes = safetensors_header_bytes(prefix, file.bytes, path);
  return parse_safetensors(read_up_to(file, kSafetensorsPrefixBytes + header_bytes, path), file.bytes, path);
}

Manifest load_manifest(const std::string& path) {
  return path.ends_with(".safetensors") ? load_safetensors(path) : load_tsv(path);
}

}  // namespace gradshm::core
