#include <algorithm>
#include <charconv>

#include "base/status.hpp"
#include "base/text.hpp"
#include "cuda/devices.hpp"

namespace gradshm::core::cuda {
namespace {

std::string listed(std::span<const DeviceFacts> devices) {
  std::string text = devices.empty() ? "there is no GPU here" : "there are";
  for (const DeviceFacts& device : devices) text += (&device == devices.data() ? " " : ", ") + std::to_string(device.ordinal) + " = " + to_text(device.uuid);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool fits(const DeviceFacts& device, std::string_view text) {
  int ordinal = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  if (error == std::errc() && end == text.data() + text.size()) return device.ordinal == ordinal;
  return text.size() > 4 && lower(to_text(device.uuid)).starts_with(lower(text));
}

}  // namespace

const DeviceFacts& choose_device(std::span<const DeviceFacts> devices, std::string_view text) {
  const auto is_it = [text](const DeviceFacts& device) { return fits(device, text); };
  const auto count = std::count_if(devices.begin(), devices.end(), is_it);
  const std::string what = "device '" + escape(text) + "'";
  if (count > 1) throw Error(Status::invalid, what + " fits more than one GPU: " + listed(devices));
  if (count == 0) throw Error(Status::not_found, what + " is not one that this process sees: " + listed(devices) + " (CUDA_VISIBLE_DEVICES decides what a process sees)");
  return *std::find_if(devices.begin(), devices.end(), is_it);
}

}  // namespace gradshm::core::cuda
