#include "capi/guard.hpp"

namespace gradshm::core {

namespace {
std::string& sentence_of_thread() noexcept {
  thread_local std::string sentence;
  return sentence;
}
}  // namespace

const std::string& last_error() noexcept { return sentence_of_thread(); }

int fail(Status status, const std::string& sentence) noexcept {
  try {
    sentence_of_thread() = sentence;
  } catch (...) {
    sentence_of_thread().clear();  // no memory for the sentence: the code says it
  }
  return static_cast<int>(status);
}

}  // namespace gradshm::core
