#include "top_loop.hpp"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <optional>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "cli_beacon.hpp"
#include "cli_common.hpp"
#include "cli_text.hpp"
#include "top_json.hpp"
#include "top_screen.hpp"
#include "top_words.hpp"

namespace gradshm::tools {
using core::Watcher;
namespace {

volatile std::sig_atomic_t asked_to_end = 0;

// The first signal ends it between two frames, or out of a write that nobody reads; a second one at once.
void ask_to_end(int) {
  if (asked_to_end != 0) _exit(kOk);
  asked_to_end = 1;
}

class Sleeper {
 public:
  Sleeper() {
    std::signal(SIGPIPE, SIG_IGN);
    struct sigaction action {};  // no SA_RESTART: a blocked write returns
    action.sa_handler = ask_to_end;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    action.sa_handler = [](int) {};  // a resized window ends a sleep early
    sigaction(SIGWINCH, &action, nullptr);
  }
  // False: a signal asks to end. Signals are open during the sleep only, so none comes between look and sleep.
  [[nodiscard]] bool sleep(std::int64_t ns) const {
    sigset_t closed, open;
    sigemptyset(&closed);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&closed, signal);
    sigprocmask(SIG_BLOCK, &closed, &open);
    const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
    if (asked_to_end == 0) ppoll(nullptr, 0, &time, &open);
    sigprocmask(SIG_SETMASK, &open, nullptr);
    return asked_to_end == 0;
  }
};

enum class Seen { running, over, reader_left };

class Top {
 public:
  explicit Top(const TopOptions& options) : options_(options), screen_(options.color, options.iterations == 0 && !options.json) {}

  [[nodiscard]] Seen look() {
    if (!watcher_) watcher_.emplace(options_.instance);
    if (const auto snapshot = watcher_->take()) return show(*snapshot);
    const auto beacon = core::read_beacon(geteuid(), options_.instance);  // no layout yet
    return beacon ? show(*beacon, true) : Seen::running;
  }

  [[nodiscard]] Seen show(const core::BeaconData& beacon, bool alive) const {
    const std::string name = core::escape(options_.instance);
    const std::string sentence = alive ? waiting_sentence(name) : "'" + name + "': " + dead_sentence(beacon, static_cast<std::uint64_t>(core::now_ns()));
    const bool written = options_.json ? write_out(to_line(beacon_document(beacon, alive))) : screen_.show({"gradshm: " + sentence});
    return !written ? Seen::reader_left : alive ? Seen::running : Seen::over;
  }

 private:
  [[nodiscard]] Seen show(const core::Snapshot& snapshot) const {
    const core::Layout& layout = *watcher_->layout();
    const bool written = options_.json ? write_out(to_line(snapshot_json(snapshot, layout))) : screen_.show(render(snapshot, layout, screen_.view()));
    return !written ? Seen::reader_left : is_over(snapshot) ? Seen::over : Seen::running;
  }

  const TopOptions& options_;
  Screen screen_;
  std::optional<Watcher> watcher_;
};

// No server answers: a dead one has left its beacon, and one that runs elsewhere says where.
int explain_absence(const Top& top, const TopOptions& options, const core::Error& error) {
  auto beacon = core::read_beacon(geteuid(), options.instance);
  if (beacon && !core::is_alive(*beacon)) return top.show(*beacon, false) == Seen::reader_left ? kOk : kDead;
  for (const core::BeaconData& other : core::list_beacons(geteuid()))
    if (!beacon && text_of(other.name) == options.instance && core::is_alive(other)) beacon = other;
  if (!beacon) throw error;
  throw core::Error(error.status(), std::string(error.what()) + "\n(pid " + std::to_string(beacon->pid) + " runs under that name, with its socket at " +
                                        core::escape(text_of(beacon->socket_path)) + ": is GRADSHM_DIR the same?)");
}

}  // namespace

int watch(const TopOptions& options) {
  const Sleeper sleeper;
  Top top(options);
  for (std::uint64_t done = 1;; ++done) {
    try {
      const Seen seen = top.look();
      if (seen != Seen::running) return seen == Seen::over ? kDead : kOk;
    } catch (const core::Error& error) {
      if (error.status() != core::Status::no_server && error.status() != core::Status::daemon_lost) throw;
      return explain_absence(top, options, error);
    }
    if (done == options.iterations || !sleeper.sleep(options.interval_ns)) return kOk;
  }
}

}  // namespace gradshm::tools
