#include "daemon/server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "daemon/fork_guard.hpp"

namespace gradshm::core {
namespace {

constexpr std::int64_t kRefreshNs = 1'000'000'000, kBusyRefreshNs = 100'000'000;
constexpr int kSpinsPerLook = 64;
constexpr std::int64_t kTimerTickNs = 100'000'000;     // how often timers are looked at while one runs
constexpr std::int64_t kLongestTurnNs = 250'000'000;  // a turn beyond this: we were stopped, or starved

std::uint64_t random_word() {
  std::uint64_t word = 0;
  while (getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word) || word == 0) {}
  return word;
}

std::optional<gid_t> socket_group(const ServerOptions& options) {
  return options.socket_group.empty() ? std::nullopt : std::optional(group_id(options.socket_group));
}

void warn_of_closed_directory(const ServerOptions& options, const std::string& path) {
  const auto group = socket_group(options);
  const std::string closed = group ? closed_to_group(path, *group) : "";
  if (!closed.empty())
    options.log(LogLevel::warning, "group " + std::to_string(*group) + " cannot reach the socket: " + closed + " does not let it pass: chgrp it and chmod g+x, or set GRADSHM_DIR");
}

UniqueFd listen_on(const std::string& path, std::optional<gid_t> group) {
  UniqueFd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd) throw system_error("socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  unlink(path.c_str());  // we hold the lock: what is there is a dead server's
  if (bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) throw system_error("bind to " + path, errno);
  if (group && chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) throw system_error("cannot give " + path + " to group " + std::to_string(*group), errno);
  if (chmod(path.c_str(), group ? 0660 : 0600) != 0) throw system_error("chmod of " + path, errno);
  if (listen(socket_fd.get(), 256) != 0) throw system_error("listen on " + path, errno);
  return socket_fd;
}

UniqueFd checked(int fd, const char* call) {
  if (fd < 0) throw system_error(call, errno);
  return UniqueFd(fd);
}

// Above 100 CPUs' worth of tags nothing changes: 8 bits of source, 56 bits of id.
constexpr std::uint64_t kIdMask = (std::uint64_t{1} << 56) - 1;

}  // namespace

Server::Server(ServerOptions options)
    : options_((check_options(options), std::move(options))),
      incarnation_(random_word()),
      next_generation_(random_word() >> 16),  // never one that a killed server gave out
      directory_(std::in_place, options_.name, socket_group(options_)),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      stop_event_(checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      spare_fd_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  try {
    if (!options_.layout_path.empty()) given_layout_ = load_manifest(options_.layout_path);
    if (const auto dead = read_beacon(geteuid(), options_.name)) begin_recovery(*dead);
    if (given_layout_ && !recovery_) make_arena(Layout(*std::exchange(given_layout_, std::nullopt), options_.layout), options_.expect);
    listener_ = listen_on(socket_path(options_.name), socket_group(options_));
    warn_of_closed_directory(options_, directory_->path());
    beacon_data_.incarnation = incarnation_, beacon_data_.pid = getpid(), beacon_data_.uid = geteuid();
    beacon_data_.pid_start = pid_start_time(getpid()), beacon_data_.started_unix_s = static_cast<std::uint64_t>(time(nullptr));
    std::strncpy(beacon_data_.name, options_.name.c_str(), sizeof beacon_data_.name - 1);
    std::strncpy(beacon_data_.socket_path, socket_path(options_.name).c_str(), sizeof beacon_data_.socket_path - 1);
    beacon_data_.pid_namespace = own_pid_namespace();
    list_members();
    beacon_.emplace(options_.name, beacon_data_);  // floor and list are in it before anybody can connect
    watch(listener_.get(), Source::listener, 0, EPOLLIN);
    watch(stop_event_.get(), Source::stop, 0, EPOLLIN);
    register_server(this);
  } catch (...) {
    if (beacon_) beacon_->remove();
    throw;
  }
}

Server::~Server() { end(); }

void Server::end() noexcept {
  if (ended_) return;
  ended_ = true;
  unregister_server(this);  // first: a fork meanwhile must not close what is being closed here
  if (publisher_) publisher_->state(ServerState::stopped), publisher_->wake();
  beacon_->remove();
  sessions_.clear();
  listener_.reset();
  directory_.reset();
}

// Not those of the sessions: their list may be in the middle of a change.
void Server::close_descriptors_in_child() noexcept {
  listener_.reset(), epoll_.reset(), stop_event_.reset();
  directory_->close_lock();
}

void Server::watch(int fd, Source source, std::uint64_t id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(source) << 56 | id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw system_error("epoll_ctl", errno);
}

// Closing a descriptor does not take it off epoll while another process holds the same open file.
void Server::unwatch(const UniqueFd& fd) noexcept {
  if (fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
}

void Server::run() {
  try {
    serve();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void Server::serve() {
  refresh(true);
  while (!stopped_) {
    if (!look_for_work() && !(draining_ && drained())) sleep();  // the stop may have come in that look: no event would end the sleep
    tick();
    if (!draining_) continue;
    while (turn()) {}  // commits that came together with the stop count
    if (drained()) stopped_ = true;
  }
}

void Server::tick() {
  notice_gap();
  enforce_deadline();
  if (recovery_) tend_recovery();
  refresh(false);
}

// Out of memory in the middle of a round is no end: nothing was marked done, so the next turn does it again.
bool Server::turn() {
  try {
    if (!rounds_ || !rounds_->turn()) return false;
    if (paused_counts_ && rounds_->closed_round() != beacon_data_.closed_round) refresh(true);
    return true;
  } catch (const std::bad_alloc&) {
    const std::int64_t now = now_ns();
    if (now - complained_ns_ > kRefreshNs) complained_ns_ = now, options_.log(LogLevel::error, "out of memory in round " + format_count(rounds_->open_round()) + ": trying again");
    return false;
  }
}

// Turns the rounds until nothing has happened for spin_ns. True: something may still come, events were looked at.
bool Server::look_for_work() {
  std::int64_t quiet_since = now_ns();
  while (turn()) {
    dispatch(0);
    quiet_since = now_ns();
    if (stopped_ || draining_) return true;
  }
  while (rounds_ && !draining_ && now_ns() - quiet_since < options_.spin_ns) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (turn()) return true;
      cpu_relax();
    }
    dispatch(0);
    if (stopped_) return true;
    if (now_ns() - ticked_ns_ >= kTimerTickNs) tick();  // a spin may be longer than a deadline, and is no gap
  }
  return false;
}

void Server::sleep() {
  if (publisher_) publisher_->idle(true);
  // A commit between the last look and `idle` rang nobody: look once more.
  if (turn()) {
    publisher_->idle(false);
    return;
  }
  std::int64_t until = refreshed_ns_ + kRefreshNs;
  if (draining_) until = std::min(until, drain_until_ns_);
  if (timers_run()) until = std::min(until, now_ns() + kTimerTickNs);
  dispatch(static_cast<int>(std::clamp<std::int64_t>((until - now_ns()) / 1'000'000 + 1, 1, 1000)));
  if (publisher_) publisher_->idle(false);
}

void Server::dispatch(int timeout_ms) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  if (count < 0 && errno != EINTR) throw system_error("epoll_wait", errno);
  for (int i = 0; i < count; ++i) handle(static_cast<Source>(events[i].data.u64 >> 56), events[i].data.u64 & kIdMask);
}

void Server::handle(Source source, std::uint64_t id) {
  if (source == Source::doorbell) return;  // it has done its work by waking us; edge-triggered, so nothing has to be read
  if (source == Source::listener) return accept_all();
  if (source == Source::stop) return begin_drain();
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;  // ended by an earlier event of the same batch
  Session& session = *found->second;
  if (source == Source::pidfd) return end_session(session, EventKind::died, kDied);
  protect(session, [&] { receive(session); });
}

void Server::deliver(Session& session, const Packet& packet) {
  protect(session, [&] { answer(session, packet); });
}

template <class Function>
void Server::protect(Session& session, Function&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    // One connection's fault: tell it, drop it, nobody else notices.
    const auto* ours = dynamic_cast<const Error*>(&error);
    options_.log(LogLevel::warning, "connection of pid " + std::to_string(session.pid) + " dropped: " + error.what());
    [[maybe_unused]] const bool sent = send_message(session.socket.get(), error_reply(ours != nullptr ? ours->status() : Status::internal, error.what()));
    if (session.member) return evict(session, "its connection sent nonsense", false);
    if (session.held_bytes == 0) return end_session(session, EventKind::evicted, "its connection sent nonsense");
    unwatch(session.socket), session.socket.reset();
  }
}

void Server::stop() noexcept {
  const std::uint64_t one = 1;
  // The counter cannot overflow in practice, and a signal handler may call this.
  [[maybe_unused]] const ssize_t written = write(stop_event_.get(), &one, sizeof one);
}

void Server::begin_drain() {
  std::uint64_t calls = 0;
  if (read(stop_event_.get(), &calls, sizeof calls) != static_cast<ssize_t>(sizeof calls)) return;
  if (draining_ || calls > 1) {
    stopped_ = true;
    return;
  }
  draining_ = true;
  drain_until_ns_ = now_ns() + options_.drain_ns;
  if (!rounds_) return;
  rounds_->stop_opening();
  publisher_->state(ServerState::draining);
  note(LogLevel::info, EventKind::draining, nullptr,
       rounds_->has_commits() ? "stopping once round " + format_count(rounds_->open_round()) + " has closed" : "stopping");
}

bool Server::drained() const {
  if (!rounds_ || rounds_->members().empty() || !rounds_->has_commits()) return true;
  return now_ns() >= drain_until_ns_;
}

// The beacon and the heartbeat: at once on membership changes, else once a second, ten times while rounds close.
void Server::refresh(bool now) {
  const std::int64_t time = now_ns();
  const bool moved = rounds_ && rounds_->closed_round() != beacon_data_.closed_round;
  if (!now && time - refreshed_ns_ < (moved ? kBusyRefreshNs : kRefreshNs)) return;
  refreshed_ns_ = time;
  beacon_data_.progress_ns = static_cast<std::uint64_t>(time);
  list_members();
  if (rounds_) beacon_data_.closed_round = rounds_->closed_round();
  static_cast<void>(beacon_->update(beacon_data_));  // a failed write leaves an older beacon, which readers see by its age
  if (publisher_) publisher_->progress(static_cast<std::uint64_t>(time));
}

void Server::list_members() {
  beacon_data_.members = 0;
  paused_counts_ = false;
  std::fill(std::begin(beacon_data_.member_ranks), std::end(beacon_data_.member_ranks), 0);
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank) {
    ListedWorker& listed = beacon_data_.listed[rank];
    listed = absent_[rank];
    // Who has not taken its slot yet is still in its attach, and begins that again with the next server.
    if (const MemberPtr& member = members_[rank]; member && member->slot) {
      // A paused one too, while what it has committed waits for its round to close.
      const bool takes_part = member->state == MemberState::ready || member->state == MemberState::member || rounds_->counts(*member);
      listed = {member->generation, member->pid_start, member->pid, takes_part ? 1u : 0u};
      paused_counts_ = paused_counts_ || (takes_part && member->state == MemberState::paused);
    }
    if (listed.generation == 0) continue;
    ++beacon_data_.members;
    beacon_data_.member_ranks[rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
}

// Before its word says so: a successor that finds that word must have waited for this worker.
void Server::list_as_taking_part(const Member& member) {
  list_members();
  beacon_data_.listed[member.rank] = {member.generation, member.pid_start, member.pid, 1u};
  static_cast<void>(beacon_->update(beacon_data_));
}

bool Server::timers_run() const noexcept {
  return recovery_ || (options_.round_deadline_ns != 0 && rounds_ && rounds_->first_commit_ns() != 0);
}

// While we were stopped nobody could be admitted or answered: what ran out meanwhile is no fault of the workers.
void Server::notice_gap() {
  const std::int64_t now = now_ns(), before = std::exchange(ticked_ns_, now);
  if (before == 0 || now - before <= kLongestTurnNs) return;
  if (round_has_begun()) extension_ns_ += now - std::max(before, first_commit_ns_);
  if (recovery_) recovery_->until_ns += now - before;
}

// Its first commit has been seen. The extension is of that round only.
bool Server::round_has_begun() {
  const std::int64_t first = rounds_ ? rounds_->first_commit_ns() : 0;
  if (first != std::exchange(first_commit_ns_, first)) extension_ns_ = 0;
  return first != 0;
}

// Sockets first, then commit words, then the deadline.
void Server::enforce_deadline() {
  if (options_.round_deadline_ns == 0 || !rounds_) return;
  const auto expired = [&] { return round_has_begun() && now_ns() >= first_commit_ns_ + options_.round_deadline_ns + extension_ns_; };
  if (!expired()) return;
  dispatch(0);
  while (turn()) {}
  if (!expired()) return;
  for (const MemberPtr& member : rounds_->late())
    if (Session* session = session_of(member))
      evict(*session, "evicted: it had not committed everything to round " + format_count(rounds_->open_round()) + " " +
                          format_seconds(options_.round_deadline_ns) + " after its first commit (--round-deadline)", true);
}

void Server::note(LogLevel level, EventKind kind, const Member* member, const std::string& text) {
  if (publisher_) publisher_->event(kind, member, rounds_->open_round(), text);
  options_.log(level, member == nullptr ? text
                                        : "worker " + std::to_string(member->rank) + " (pid " + std::to_string(member->pid) + ", '" +
                                              escape(member->label) + "'): " + text);
}

}  // namespace gradshm::core
