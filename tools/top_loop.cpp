#include "top_loop.hpp"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <optional>
#include <utility>

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

enum class Seen { running, dead, stopped, reader_left };

class Top {
 public:
  explicit Top(const TopOptions& options) : options_(options), screen_(options.color, options.iterations == 0 && !options.json) {}

  // Throws core::Error if there is no instance to look at, dead or alive.
  [[nodiscard]] Seen look() {
    try {
      if (!watcher_ || is_dead_) connect();
      const auto snapshot = watcher_->take();
      return snapshot ? show(*snapshot) : show_waiting();
    } catch (const core::Error& error) {
      if (!is_absence(error)) throw;
      return show_absence(error);
    }
  }

 private:
  void connect() {
    Watcher fresh(options_.instance);  // where nobody answers, the old one stays
    watcher_.emplace(std::move(fresh)), is_dead_ = false;
  }

  static bool is_absence(const core::Error& error) { return error.status() == core::Status::no_server || error.status() == core::Status::daemon_lost; }

  [[nodiscard]] Seen show(const core::Snapshot& snapshot) {
    const core::Layout& layout = *watcher_->layout();
    const bool written = options_.json ? write_out(to_line(snapshot_json(snapshot, layout))) : screen_.show(render(snapshot, layout, screen_.view()));
    is_dead_ = !snapshot.daemon_alive && snapshot.state != core::ServerState::stopped;
    return !written ? Seen::reader_left : is_dead_ ? Seen::dead : is_over(snapshot) ? Seen::stopped : Seen::running;
  }

  [[nodiscard]] Seen show(const core::BeaconData& beacon, bool alive) const {
    const auto now = static_cast<std::uint64_t>(core::now_ns());
    const std::string waiting = "gradshm: " + waiting_sentence(beacon);
    const bool written = options_.json ? write_out(to_line(beacon_document(beacon, alive, now)))
                                       : screen_.show(alive ? wrap_words(waiting, screen_.view().width) : render_dead(beacon, now, screen_.view()));
    return !written ? Seen::reader_left : alive ? Seen::running : Seen::dead;
  }

  [[nodiscard]] Seen show_waiting() const {
    const auto beacon = core::read_beacon(geteuid(), options_.instance);
    return beacon ? show(*beacon, true) : Seen::running;
  }

  // Nobody answers yet. Who has seen the server alive still holds its memory, which says more than its beacon.
  [[nodiscard]] Seen show_absence(const core::Error& error) {
    if (watcher_ && watcher_->layout() != nullptr)
      if (const auto last = watcher_->take()) return show(*last);
    watcher_.reset();
    const auto beacon = core::read_beacon(geteuid(), options_.instance);
    // A zombie counts as alive; who has lost it knows better.
    if (!beacon || (error.status() == core::Status::no_server && core::is_alive(*beacon))) throw error;
    return show(*beacon, false);
  }

  const TopOptions& options_;
  Screen screen_;
  std::optional<Watcher> watcher_;
  bool is_dead_ = false;  // what watcher_ looks at
};

}  // namespace

int watch(const TopOptions& options) {
  const Sleeper sleeper;
  Top top(options);
  for (std::uint64_t done = 1;; ++done) {
    Seen seen = Seen::running;
    try {
      seen = top.look();
    } catch (const core::Error& error) {
      if (error.status() != core::Status::no_server && error.status() != core::Status::daemon_lost) throw;
      throw explain_absence(options.instance, error);
    }
    const bool waits = seen == Seen::dead && options.iterations == 0;
    if (seen != Seen::running && !waits) return seen == Seen::reader_left ? kOk : kDead;
    if (done == options.iterations || !sleeper.sleep(options.interval_ns)) return kOk;
  }
}

}  // namespace gradshm::tools
