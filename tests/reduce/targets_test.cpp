#include <doctest/doctest.h>

#include "sources.hpp"

namespace gradshm::core::test {
namespace {

TEST_CASE("every SIMD target of the list can be forced and is then the one in use") {
  const TargetGuard guard;
  REQUIRE(!simd_targets().empty());
  for (const std::string& target : simd_targets()) {
    CHECK(force_simd_target(target));
    CHECK(simd_target_in_use() == target);
  }
}

TEST_CASE("the empty name brings back the best SIMD target") {
  const TargetGuard guard;
  CHECK(force_simd_target(simd_targets().back()));
  CHECK(force_simd_target(""));
  CHECK(simd_target_in_use() == simd_targets().front());
}

TEST_CASE("an unknown SIMD target is refused and changes nothing") {
  const std::string before = simd_target_in_use();
  CHECK(!force_simd_target("AVX9"));
  CHECK(simd_target_in_use() == before);
}

}  // namespace
}  // namespace gradshm::core::test
