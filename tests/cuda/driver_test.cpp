#include <doctest/doctest.h>

#include <thread>

#include "cuda/support.hpp"

using namespace gradshm::test;
using gradshm::core::Error;
using gradshm::core::Status;
using gradshm::core::cuda::driver;

namespace {

// What driver() throws in a process of its own; the status goes first.
std::string refusal(const Settings& settings) {
  const RunDirectory directory;
  const std::string path = directory.path() + "/said";
  Child child = start_on_fake(settings, [&] {
    try {
      static_cast<void>(driver());
    } catch (const Error& error) {
      write_text(path, std::string(error.status() == Status::unsupported ? "unsupported: " : "other: ") + error.what());
    }
    return 0;
  });
  return child.wait() == 0 ? read_text(path) : "the child failed";
}

int empty_entries(const Driver& cu) {
  int empty = 0;
#define GRADSHM_TEST_MEMBER(member, name) empty += cu.member == nullptr;
  GRADSHM_CUDA_ENTRIES(GRADSHM_TEST_MEMBER)
#undef GRADSHM_TEST_MEMBER
  return empty;
}

}  // namespace

TEST_CASE("the table has every entry, and knows the driver's version") {
  CHECK(run_on_fake({{"GRADSHM_FAKE_VERSION", "12040"}}, [](Verdict& verdict) {
          const Driver& cu = driver();
          verdict.expect(empty_entries(cu) == 0);
          verdict.expect(cu.version == 12040);
          verdict.expect(&cu == &driver());
        }) == 0);
}

TEST_CASE("threads that ask for the driver at the same time get the same one") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          const Driver* seen[4] = {};
          {
            std::vector<std::jthread> threads;
            for (const Driver*& each : seen) threads.emplace_back([&each] { each = &driver(); });
          }
          for (const Driver* each : seen) verdict.expect(each == seen[0] && each != nullptr);
        }) == 0);
}

TEST_CASE("a machine without a driver is told so, with what to do") {
  const std::string said = refusal({{"GRADSHM_CUDA_DRIVER", "/nowhere/libcuda.so.1"}});
  CHECK(contains(said, "unsupported: no CUDA driver: /nowhere/libcuda.so.1"));
  CHECK(contains(said, "use host memory"));
}

TEST_CASE("the toolkit's stub is called a stub") {
  CHECK(contains(refusal({{"GRADSHM_FAKE_INIT", "34"}}), "libcuda.so.1 is the toolkit's stub, not a driver: take its directory out of LD_LIBRARY_PATH"));
}

TEST_CASE("a library that is no driver of CUDA 12 lacks its entry point") {
  CHECK(contains(refusal({{"GRADSHM_CUDA_DRIVER", "libm.so.6"}}), "unsupported: libm.so.6 has no cuGetProcAddress_v2"));
}

TEST_CASE("a driver that is too old is refused with its version and the one that is needed") {
  const std::string said = refusal({{"GRADSHM_FAKE_VERSION", "11080"}});
  CHECK(contains(said, "is of CUDA 11.8; gradshm needs 12.0"));
  CHECK(contains(said, "525"));
}

TEST_CASE("a missing entry is named") {
  CHECK(contains(refusal({{"GRADSHM_FAKE_MISSING", "cuMemSetAccess"}}), "lacks cuMemSetAccess (code 500): install a driver of version 525 or newer"));
}

TEST_CASE("what cuInit refuses is said with its name") {
  CHECK(contains(refusal({{"GRADSHM_FAKE_INIT", "100"}}), "the CUDA driver does not start: cuInit: CUDA_ERROR_NO_DEVICE (100, "));
  CHECK(contains(refusal({{"CUDA_VISIBLE_DEVICES", ""}}), "CUDA_ERROR_NO_DEVICE (100, "));
  CHECK(contains(refusal({{"GRADSHM_FAKE_DEVICES", "0"}}), "CUDA_ERROR_NO_DEVICE (100, "));
  CHECK(contains(refusal({{"GRADSHM_FAKE_INIT", "987"}}), "cuInit: unknown code (987)"));
}

TEST_CASE("a refusal is not for ever: the next call tries again") {
  CHECK(run_on_fake({{"GRADSHM_CUDA_DRIVER", "/nowhere"}}, [](Verdict& verdict) {
          bool refused = false;
          try {
            static_cast<void>(driver());
          } catch (const Error&) {
            refused = true;
          }
          verdict.expect(refused);
          setenv("GRADSHM_CUDA_DRIVER", fake_path().c_str(), 1);
          verdict.expect(driver().version == 13000);
        }) == 0);
}

TEST_CASE("an error of the driver says which call, which code, and whether memory is short") {
  CHECK(run_on_fake({}, [](Verdict& verdict) {
          using gradshm::core::cuda::driver_error;
          verdict.expect(driver_error("arena", "cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY).what() ==
                         std::string("arena: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)"));
          verdict.expect(driver_error("arena", "cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY).status() == Status::no_space);
          verdict.expect(driver_error("launch", "cuLaunchKernel", CUDA_ERROR_ILLEGAL_ADDRESS).status() == Status::system);
        }) == 0);
}
