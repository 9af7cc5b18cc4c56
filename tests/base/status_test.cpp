#include "base/status.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <string>

using namespace gradshm::core;

TEST_CASE("every code has a text of its own, and unknown codes say so") {
  std::set<std::string> texts;
  for (int code = GRADSHM_INTERNAL; code <= GRADSHM_OK; ++code) texts.insert(status_text(code));
  CHECK(texts.size() == static_cast<std::size_t>(GRADSHM_OK - GRADSHM_INTERNAL + 1));
  CHECK(texts.count("unknown code") == 0);
  CHECK(std::string(status_text(1)) == "unknown code");
  CHECK(std::string(status_text(GRADSHM_INTERNAL - 1)) == "unknown code");
}

TEST_CASE("an Error is a system_error whose what() is the whole sentence") {
  const Error error(Status::rank_taken, "rank 3 is taken");
  CHECK(std::string(error.what()) == "rank 3 is taken");
  CHECK(error.code().value() == GRADSHM_RANK_TAKEN);
  CHECK(std::string(error.code().category().name()) == "gradshm");
  CHECK(error.code().message() == "the rank is taken");
}

TEST_CASE("a failed system call becomes the code that fits and names the call") {
  CHECK(system_error("open", EACCES).status() == Status::permission);
  CHECK(system_error("open", EPERM).status() == Status::permission);
  CHECK(system_error("write", ENOSPC).status() == Status::no_space);
  CHECK(system_error("mmap", ENOMEM).status() == Status::no_memory);
  CHECK(system_error("pidfd_open", ENOSYS).status() == Status::unsupported);
  CHECK(system_error("socket", EMFILE).status() == Status::system);
  CHECK(std::string(system_error("socket", EMFILE).what()) == "socket: Too many open files");
}
