#include "progress.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace fashion {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::milliseconds kPlainLine{3000};
constexpr std::size_t kBarWidth = 24;

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (no_colour == nullptr || *no_colour == '\0') && term != nullptr && std::string(term) != "dumb";
}

}  // namespace

std::string progress_text(const Step& step) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "round %zu of %zu, loss %.3f, %.0f samples/s", step.round, step.rounds, step.loss,
                step.samples_per_second);
  return text.data();
}

std::string progress_bar(std::size_t round, std::size_t rounds, std::size_t width) {
  const std::size_t filled = rounds == 0 ? width : width * round / rounds;
  std::string bar(width + 2, '.');
  bar.replace(1, filled, filled, '#');
  bar.front() = '[';
  bar.back() = ']';
  return bar;
}

Progress::Progress(std::size_t rounds, std::size_t batch, bool quiet)
    : rounds_(rounds), batch_(batch), quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), colour_(terminal_ && wants_colour()),
      start_(Clock::now()), shown_(start_) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', stderr);
}

void Progress::round_closed(std::size_t round, double loss) {
  smooth_loss_ = round == 1 ? loss : 0.95 * smooth_loss_ + 0.05 * loss;
  const auto now = Clock::now();
  const bool due = now - shown_ >= (terminal_ ? kRedraw : kPlainLine) || round == rounds_;
  if (quiet_ || !due) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  show({round, rounds_, smooth_loss_, static_cast<double>(round * batch_) / seconds});
}

void Progress::show(const Step& step) {
  const std::string text = progress_text(step);
  if (!terminal_) {
    std::fprintf(stderr, "train_fashion: %s\n", text.c_str());
    return;
  }
  const char* on = colour_ ? "\x1b[32m" : "";
  const char* off = colour_ ? "\x1b[0m" : "";
  // Spaces at the end cover what a longer line left behind; erasing by an escape would need a terminal that knows it.
  std::fprintf(stderr, "\r%s%s%s %s  ", on, progress_bar(step.round, step.rounds, kBarWidth).c_str(), off, text.c_str());
  line_open_ = true;
}

}  // namespace fashion
