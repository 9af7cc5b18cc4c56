// Memory: the size of /dev/shm does not matter, and what cannot fit is refused at creation, in numbers.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

constexpr int kNotPermitted = 77;
constexpr std::int64_t kHalfGiB = 512 << 20;

bool mount_small_shm() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") == 0;
}

std::uint64_t shm_bytes() {
  struct statvfs info {};
  return statvfs("/dev/shm", &info) == 0 ? info.f_blocks * info.f_frsize : 0;
}

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    std::uint64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

// Result and slot have half a GiB each.
int use_one_gib() {
  if (!mount_small_shm()) return kNotPermitted;
  Verdict verdict;
  verdict.expect(shm_bytes() == 64u << 20);
  DaemonProcess daemon({"--op", "sum"});
  Worker worker = attach(daemon.name(), one_vector(kHalfGiB / 4), 0);
  const std::span<float> slot = worker.slot<float>("w");
  std::ranges::fill(slot, 2.0f);
  slot.back() = 3;
  verdict.expect(step(worker));
  const std::span<const float> result = worker.result<float>("w");
  verdict.expect(std::ranges::all_of(result.first(result.size() - 1), [](float element) { return element == 2; }));
  verdict.expect(result.back() == 3);
  return verdict.code();
}

std::string write_layout(const RunDirectory& directory, const std::string& shape, const std::string& numel) {
  const std::string path = directory.path() + "/layout.tsv";
  write_text(path, "name\tdtype\tshape\tnumel\nhuge\tfloat32\t" + shape + "\t" + numel + "\n");
  return path;
}

// What the library says is free, for as long as it lives.
struct PretendFree {
  explicit PretendFree(const char* bytes) { setenv("GRADSHM_TEST_FREE_BYTES", bytes, 1); }
  ~PretendFree() { unsetenv("GRADSHM_TEST_FREE_BYTES"); }
  PretendFree(const PretendFree&) = delete;
  PretendFree& operator=(const PretendFree&) = delete;
};

std::string refusal(const std::string& instance, const Layout& layout, int& ret_code) {
  try {
    [[maybe_unused]] const Worker worker = attach(instance, layout, 0);
    return {};
  } catch (const Error& error) {
    ret_code = error.code().value();
    return error.what();
  }
}

}  // namespace

TEST_CASE("nccl#290: an arena of 1 GiB works where /dev/shm has 64 MiB") {
  if (geteuid() != 0) return skip("nccl#290 needs root to mount a small /dev/shm");
  if (available_bytes() < std::uint64_t{1536} << 20) return skip("nccl#290 needs 1.5 GiB of free memory");
  Child child(use_one_gib);
  const int code = child.wait();
  if (code == kNotPermitted) return skip("nccl#290: this container may not mount");
  CHECK(code == 0);
}

TEST_CASE("pytorch#5040: a server whose arena is larger than the memory there is ends with the bytes wanted and free") {
  RunDirectory directory;
  const std::string layout = write_layout(directory, "1048576x1048576", "1099511627776");
  const Output output = run_program("tools/gradshmd", {"--name", fresh_name(), "--layout", layout});
  CAPTURE(output.text);
  CHECK(output.code == 3);
  CHECK(contains(output.text, "4,398,046,511,104 gradient bytes"));
  CHECK(contains(output.text, " are free ("));
  CHECK_FALSE(contains(output.text, "ready: "));
}

TEST_CASE("pytorch#5040: the slots of all expected workers are counted before the server starts") {
  RunDirectory directory;
  const PretendFree free("20000000");
  const std::string layout = write_layout(directory, "1000000", "1000000");
  const Output output = run_program("tools/gradshmd", {"--name", fresh_name(), "--layout", layout, "--expect", "8"});
  CAPTURE(output.text);
  CHECK(output.code == 3);
  CHECK(contains(output.text, "8 expected workers"));
  CHECK(contains(output.text, "20,000,000 are free"));
}

TEST_CASE("ray#14182: a first worker whose layout does not fit is told the bytes wanted and free, and a smaller one still attaches") {
  DaemonProcess daemon;
  int code = 0;
  const std::string sentence = refusal(daemon.name(), one_vector(std::int64_t{1} << 40), code);
  CAPTURE(sentence);
  CHECK(code == GRADSHM_NO_SPACE);
  CHECK(contains(sentence, "4,398,046,511,104 gradient bytes"));
  CHECK(contains(sentence, " are free ("));
  Worker worker = attach(daemon.name(), one_vector(100), 0);
  CHECK(step(worker));
}

TEST_CASE("ray#14182: a worker whose slot does not fit is told so before it writes, and nobody else notices") {
  DaemonProcess daemon;
  const Layout layout = one_vector(1000000);
  Board board;
  Child other([&] {
    Worker worker = attach(daemon.name(), layout, 1);
    board.set(0, 1);
    if (!reaches(board, 1, 1)) return 2;
    fill(worker, 5);
    return step(worker) && holds(worker, 5) ? 0 : 1;
  });
  REQUIRE(reaches(board, 0, 1));
  int code = 0;
  const PretendFree free("1000000");
  const std::string sentence = refusal(daemon.name(), layout, code);
  CAPTURE(sentence);
  CHECK(code == GRADSHM_NO_SPACE);
  CHECK(contains(sentence, "1,000,000 are free"));
  board.set(1, 1);
  CHECK(other.wait() == 0);
}
