#include "memory/memfd.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/status.hpp"

using namespace gradshm::core;

namespace {
// What a receiver of the descriptor could try.
bool can_map_writable(int fd) {
  void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  munmap(map, 4096);
  return true;
}
}  // namespace

TEST_CASE("a sealed object keeps its first writable mapping and allows no other write") {
  const MemFd file = MemFd::create("t", 8192);
  file.allocate();
  const Mapping ours(file, Mapping::Access::read_write, 8192, "test object");
  file.seal(kSealShrink | kSealGrow | kSealFutureWrite | kSealSeal);
  std::memcpy(ours.data(), "written", 8);
  const Mapping theirs(file, Mapping::Access::read_only, 8192, "test object");
  CHECK(std::strcmp(reinterpret_cast<const char*>(theirs.data()), "written") == 0);
  CHECK_FALSE(can_map_writable(file.fd()));
  CHECK(pwrite(file.fd(), "x", 1, 0) == -1);
  CHECK(ftruncate(file.fd(), 4096) == -1);
  CHECK(ftruncate(file.fd(), 16384) == -1);
  CHECK(fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  CHECK(mprotect(theirs.data(), 4096, PROT_READ | PROT_WRITE) == -1);
  CHECK(fcntl(file.fd(), 1024 + 9, kSealWrite) == -1);
}

TEST_CASE("a store into a read-only mapping ends the process that tries") {
  const MemFd file = MemFd::create("t", 4096);
  const Mapping map(file, Mapping::Access::read_only, 4096, "test object");
  // A bare child, because DONTFORK keeps the mapping out of children: map again there.
  const pid_t pid = fork();
  if (pid == 0) {
    const Mapping own(file, Mapping::Access::read_only, 4096, "test object");
    signal(SIGSEGV, SIG_DFL);
    *reinterpret_cast<volatile char*>(own.data()) = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) != 0));
}

TEST_CASE("mappings are not inherited by a forked child") {
  const MemFd file = MemFd::create("t", 4096);
  const Mapping map(file, Mapping::Access::read_write, 4096, "test object");
  const pid_t pid = fork();
  if (pid == 0) {
    unsigned char there = 0;
    _exit(mincore(map.data(), 4096, &there) == -1 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a memfd is private to its user and closed on exec") {
  const MemFd file = MemFd::create("t", 10);
  struct stat info {};
  REQUIRE(fstat(file.fd(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK((fcntl(file.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(file.size() == 10);
}

TEST_CASE("allocate takes the pages, create does not") {
  const MemFd file = MemFd::create("t", 1 << 20);
  CHECK(file.allocated_bytes() == 0);
  file.allocate();
  CHECK(file.allocated_bytes() >= 1 << 20);
}

TEST_CASE("an impossible size is an error that names the bytes") {
  try {
    static_cast<void>(MemFd::create("t", UINT64_MAX));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.status() == Status::no_space);
    CHECK(std::string(error.what()).find("18,446,744,073,709,551,615") != std::string::npos);
  }
}

TEST_CASE("read_sealed takes only what nobody can change any more") {
  CHECK(read_sealed(MemFd::sealed_copy("t", "content"), 100, "the thing") == "content");
  CHECK(read_sealed(MemFd::sealed_copy("t", ""), 100, "the thing").empty());
  CHECK_THROWS_WITH_AS(read_sealed(MemFd::create("t", 7), 100, "the thing"), "the thing is no sealed memfd", Error);
  CHECK_THROWS_WITH_AS(read_sealed(MemFd(UniqueFd(open("/dev/zero", O_RDONLY))), 100, "the thing"), "the thing is no sealed memfd", Error);
  CHECK_THROWS_WITH_AS(read_sealed(MemFd::sealed_copy("t", "content"), 6, "the thing"), "the thing has 7 bytes; at most 6 are taken", Error);
}

TEST_CASE("a descriptor that is reopened for reading reads the same bytes and maps nothing writable") {
  const MemFd file = MemFd::create("t", 4096);
  const Mapping writer(file, Mapping::Access::read_write, 4096, "t");
  *writer.at<char>(7) = 'x';
  const UniqueFd reader = reopen_read_only(file);
  REQUIRE(reader);
  CHECK((fcntl(reader.get(), F_GETFD) & FD_CLOEXEC) != 0);
  char seen = 0;
  CHECK(pread(reader.get(), &seen, 1, 7) == 1);
  CHECK(seen == 'x');
  CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader.get(), 0) == MAP_FAILED);
  CHECK_FALSE(reopen_read_only(MemFd()));
}
