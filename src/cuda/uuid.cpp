#include "cuda/uuid.hpp"

namespace gradshm::core::cuda {
namespace {

constexpr std::string_view kPrefix = "GPU-";
constexpr std::string_view kDigits = "0123456789abcdef";

constexpr bool is_dash(std::size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }  // before that byte

int digit(char c) {
  if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  const std::size_t found = kDigits.find(c);
  return found == std::string_view::npos ? -1 : static_cast<int>(found);
}

}  // namespace

std::string to_text(const Uuid& uuid) {
  std::string text(kPrefix);
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (is_dash(i)) text += '-';
    text += kDigits[uuid.bytes[i] >> 4], text += kDigits[uuid.bytes[i] & 15];
  }
  return text;
}

std::optional<Uuid> uuid_of(std::string_view text) {
  if (text.starts_with(kPrefix)) text.remove_prefix(kPrefix.size());
  Uuid uuid;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (is_dash(i) && text.starts_with('-')) text.remove_prefix(1);
    else if (is_dash(i)) return std::nullopt;
    if (text.size() < 2 || digit(text[0]) < 0 || digit(text[1]) < 0) return std::nullopt;
    uuid.bytes[i] = static_cast<std::uint8_t>(digit(text[0]) << 4 | digit(text[1]));
    text.remove_prefix(2);
  }
  if (!text.empty()) return std::nullopt;
  return uuid;
}

}  // namespace gradshm::core::cuda
