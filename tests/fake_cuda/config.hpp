// What the environment asks the fake driver for. control.hpp has the list.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace gradshm::fake {

inline constexpr int kMostDevices = 8;
inline constexpr int kGaveUp = 125;  // exit code after a sentence on stderr: the test asked for what cannot be

struct InjectedError {
  std::string name;
  std::uint64_t nth = 0;  // 0: every one
  int code = 0;
};

struct Config {
  int devices = 1;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  int multiprocessors = 8;
  int capability_major = 9, capability_minor = 0;
  int version = 13000;
  int init_code = 0;
  std::set<std::string> missing, without;
  std::array<std::array<bool, kMostDevices>, kMostDevices> peers{};  // by number of the device, not by ordinal
  unsigned jitter_us = 0, slow_us = 0;
  std::uint64_t seed = 1;
  std::vector<InjectedError> errors;
  std::string session;       // path, empty: none
  std::vector<int> visible;  // ordinal -> number of the device

  [[nodiscard]] bool works(const char* feature) const { return without.count(feature) == 0 && without.count(std::string("!") + feature) == 0; }
  [[nodiscard]] bool promises(const char* feature) const { return without.count(feature) == 0; }
};

// Read by the first call, for the life of the process.
[[nodiscard]] const Config& config();
[[nodiscard]] std::array<unsigned char, 16> uuid_of(int device);

}  // namespace gradshm::fake
