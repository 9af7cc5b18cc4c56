#include "fake_cuda/config.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace gradshm::fake {
namespace {

[[noreturn]] void give_up(const char* variable, std::string_view value, const char* expected) {
  std::fprintf(stderr, "fake CUDA driver: %s=%.*s: %s expected\n", variable, static_cast<int>(value.size()), value.data(), expected);
  std::_Exit(kGaveUp);
}

std::string text(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : "";
}

std::vector<std::string> parts(const std::string& value, char separator) {
  std::vector<std::string> found;
  std::istringstream stream(value);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) found.push_back(part);
  return found;
}

std::uint64_t number(const char* variable, std::string_view value, std::uint64_t most = UINT64_MAX) {
  std::uint64_t found = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), found);
  if (error != std::errc{} || end != value.data() + value.size() || found > most) give_up(variable, value, ("a number up to " + std::to_string(most)).c_str());
  return found;
}

template <class Number>
void read_number(const char* variable, Number& ret_value, std::uint64_t most) {
  if (const std::string value = text(variable); !value.empty()) ret_value = static_cast<Number>(number(variable, value, most));
}

void read_bytes(const char* variable, std::uint64_t& ret_bytes) {
  std::string value = text(variable);
  if (value.empty()) return;
  const std::size_t unit = std::string_view("KMG").find(value.back());
  if (unit != std::string_view::npos) value.pop_back();
  ret_bytes = number(variable, value, UINT64_MAX >> 40) << (unit != std::string_view::npos ? 10 * (unit + 1) : 0);
}

void read_capability(Config& config) {
  const std::vector<std::string> both = parts(text("GRADSHM_FAKE_CAPABILITY"), '.');
  if (both.empty()) return;
  if (both.size() != 2) give_up("GRADSHM_FAKE_CAPABILITY", both[0], "major.minor");
  config.capability_major = static_cast<int>(number("GRADSHM_FAKE_CAPABILITY", both[0], 99));
  config.capability_minor = static_cast<int>(number("GRADSHM_FAKE_CAPABILITY", both[1], 99));
}

void read_without(Config& config) {
  static const std::set<std::string> known{"vmm", "vmm-fd", "ipc", "memops", "host-register"};
  for (const std::string& part : parts(text("GRADSHM_FAKE_WITHOUT"), ',')) {
    if (known.count(part.substr(part[0] == '!' ? 1 : 0)) == 0) give_up("GRADSHM_FAKE_WITHOUT", part, "vmm, vmm-fd, ipc, memops or host-register");
    config.without.insert(part);
  }
}

void read_peers(Config& config) {
  const char* const variable = "GRADSHM_FAKE_PEERS";
  const std::string value = text(variable);
  if (value == "none") return;
  if (value.empty() || value == "all")
    for (auto& row : config.peers) row.fill(true);
  else
    for (const std::string& pair : parts(value, ',')) {
      const std::vector<std::string> ends = parts(pair, '-');
      if (ends.size() != 2) give_up(variable, pair, "all, none or pairs like 0-1");
      const std::uint64_t one = number(variable, ends[0], kMostDevices - 1), other = number(variable, ends[1], kMostDevices - 1);
      config.peers[one][other] = config.peers[other][one] = true;
    }
}

void read_errors(Config& config) {
  const char* const variable = "GRADSHM_FAKE_ERRORS";
  for (const std::string& error : parts(text(variable), ',')) {
    const std::vector<std::string> fields = parts(error, ':');
    if (fields.size() != 3) give_up(variable, error, "name:nth:code");
    const std::uint64_t nth = fields[1] == "*" ? 0 : number(variable, fields[1]);
    if (fields[1] != "*" && nth == 0) give_up(variable, error, "a count from 1, or *,");
    config.errors.push_back({fields[0], nth, static_cast<int>(number(variable, fields[2], 999))});
  }
}

std::string uuid_text(int device) {
  std::string text = "GPU-";
  const auto bytes = uuid_of(device);
  for (std::size_t index = 0; index < bytes.size(); ++index) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[index]);
    text += (index == 4 || index == 6 || index == 8 || index == 10 ? "-" : "") + std::string(digits);
  }
  return text;
}

// -1: there is none.
int device_called(const std::string& name, int devices) {
  int found = -1;
  if (name.rfind("GPU-", 0) != 0) {
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found);
    return error == std::errc{} && end == name.data() + name.size() && found < devices ? found : -1;
  }
  for (int device = 0; device < devices; ++device)
    if (uuid_text(device).rfind(name, 0) == 0) {
      if (found >= 0) return -1;  // a beginning that fits two
      found = device;
    }
  return found;
}

// What stands behind an unknown device is not visible either.
void read_visible(Config& config) {
  if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) {
    for (int device = 0; device < config.devices; ++device) config.visible.push_back(device);
    return;
  }
  for (const std::string& name : parts(text("CUDA_VISIBLE_DEVICES"), ',')) {
    const int device = device_called(name, config.devices);
    if (device < 0) return;
    if (std::ranges::find(config.visible, device) == config.visible.end()) config.visible.push_back(device);
  }
}

Config read() {
  Config config;
  read_number("GRADSHM_FAKE_DEVICES", config.devices, kMostDevices);
  read_bytes("GRADSHM_FAKE_MEMORY", config.memory_bytes);
  read_number("GRADSHM_FAKE_SMS", config.multiprocessors, 1024);
  read_number("GRADSHM_FAKE_VERSION", config.version, 99999);
  read_number("GRADSHM_FAKE_INIT", config.init_code, 999);
  read_number("GRADSHM_FAKE_JITTER_US", config.jitter_us, 10'000'000);
  read_number("GRADSHM_FAKE_SLOW_US", config.slow_us, 10'000'000);
  read_number("GRADSHM_FAKE_SEED", config.seed, UINT64_MAX);
  for (const std::string& name : parts(text("GRADSHM_FAKE_MISSING"), ',')) config.missing.insert(name);
  config.session = text("GRADSHM_FAKE_SESSION");
  read_capability(config), read_without(config), read_peers(config), read_errors(config), read_visible(config);
  return config;
}

}  // namespace

const Config& config() {
  static const Config* const only = new Config(read());  // never destroyed: streams run until the process is gone
  return *only;
}

std::array<unsigned char, 16> uuid_of(int device) {
  return {0xfa, 0x4e, 0xc0, 0xda, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, static_cast<unsigned char>(device)};
}

}  // namespace gradshm::fake
