#include "memory/rundir.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/status.hpp"

using namespace gradshm::core;

namespace {

struct TemporaryDirectory {
  std::string path = "/tmp/gradshm-rundir-XXXXXX";
  TemporaryDirectory() {
    REQUIRE(mkdtemp(path.data()) != nullptr);
    setenv("GRADSHM_DIR", path.c_str(), 1);
  }
  ~TemporaryDirectory() {
    unsetenv("GRADSHM_DIR");
    std::filesystem::remove_all(path);
  }
};

Status status_of_open(const std::string& name) {
  try {
    InstanceDirectory directory(name);
    return Status::ok;
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace

TEST_CASE("instance names take 1 to 64 letters, digits, dots, dashes and underscores") {
  for (const char* good : {"default", "a", "A.b_c-9", "..."}) CHECK_NOTHROW(check_instance_name(good));
  CHECK_NOTHROW(check_instance_name(std::string(64, 'x')));
  for (const char* bad : {"", ".", "..", "a/b", "a b", "größe", "a\n"}) CHECK_THROWS_AS(check_instance_name(bad), Error);
  CHECK_THROWS_AS(check_instance_name(std::string(65, 'x')), Error);
}

TEST_CASE("the directory of sockets is GRADSHM_DIR, else XDG_RUNTIME_DIR/gradshm, else in /tmp with the uid") {
  unsetenv("GRADSHM_DIR"), setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  CHECK(run_directory() == "/run/user/7/gradshm");
  setenv("GRADSHM_DIR", "/elsewhere", 1);
  CHECK(run_directory() == "/elsewhere");
  CHECK(socket_path("x") == "/elsewhere/x/sock");
  setenv("GRADSHM_DIR", "/elsewhere//a/..//", 1);
  CHECK(run_directory() == "/elsewhere");
  setenv("GRADSHM_DIR", "relative", 1);
  CHECK(run_directory() == std::filesystem::current_path().string() + "/relative");
  unsetenv("GRADSHM_DIR"), unsetenv("XDG_RUNTIME_DIR");
  CHECK(run_directory() == "/tmp/gradshm-" + std::to_string(geteuid()));
}

TEST_CASE("a socket path that does not fit into its 108 bytes is refused with what to do") {
  setenv("GRADSHM_DIR", ("/tmp/" + std::string(100, 'd')).c_str(), 1);
  CHECK_THROWS_AS(static_cast<void>(socket_path("default")), Error);
  unsetenv("GRADSHM_DIR");
}

TEST_CASE("one server a name: the second is refused naming the pid of the first, until that one ends") {
  const TemporaryDirectory directory;
  {
    const InstanceDirectory first("one");
    try {
      InstanceDirectory second("one");
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.status() == Status::already_running);
      CHECK(std::string(error.what()).find("pid " + std::to_string(getpid())) != std::string::npos);
    }
    CHECK(status_of_open("two") == Status::ok);
  }
  CHECK(status_of_open("one") == Status::ok);
}

TEST_CASE("a directory that is no directory, foreign, or writable by others is refused") {
  const TemporaryDirectory directory;
  CHECK(symlink("/tmp", (directory.path + "/link").c_str()) == 0);
  CHECK(status_of_open("link") == Status::permission);
  CHECK(mkdir((directory.path + "/open").c_str(), 0700) == 0);
  CHECK(chmod((directory.path + "/open").c_str(), 0777) == 0);
  CHECK(status_of_open("open") == Status::permission);
  if (geteuid() != 0) return;
  CHECK(mkdir((directory.path + "/foreign").c_str(), 0700) == 0);
  CHECK(chown((directory.path + "/foreign").c_str(), 65534, 65534) == 0);
  CHECK(status_of_open("foreign") == Status::permission);
}

TEST_CASE("an instance directory that ends leaves nothing behind") {
  const TemporaryDirectory directory;
  struct stat info {};
  std::string path;
  {
    const InstanceDirectory made("gone");
    path = made.path();
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
  }
  CHECK(stat(path.c_str(), &info) == -1);
}
