#include "client/snapshot.hpp"

#include <unistd.h>

#include <cstring>

#include "base/clock.hpp"
#include "client/handle.hpp"
#include "protocol/atomics.hpp"
#include "protocol/member_word.hpp"
#include "protocol/seqlock.hpp"

namespace gradshm::core {
namespace {

constexpr int kTries = 100;
constexpr std::int64_t kAskTimeoutNs = 10'000'000'000;

std::optional<MemberSnapshot> take_member(const MemberEntry& shared, int rank) {
  constexpr std::size_t kStart = offsetof(MemberEntry, pid), kBytes = sizeof(MemberEntry) - kStart;
  const std::uint64_t word = load_seq_cst(shared.word);  // order: seq_cst, pairs with Publisher::member
  if (state_of(word) == MemberState::free) return std::nullopt;
  MemberEntry entry;
  bool whole = false;
  for (int i = 0; i < kTries && !whole; ++i)
    whole = try_read(shared.sequence, reinterpret_cast<std::byte*>(&entry) + kStart, reinterpret_cast<const std::byte*>(&shared) + kStart, kBytes);
  if (!whole) return std::nullopt;
  MemberSnapshot member;
  member.rank = rank, member.generation = generation_of(word), member.state = state_of(word);
  member.pid = entry.pid, member.uid = entry.uid, member.partial = entry.partial != 0;
  member.first_round = load_relaxed(shared.first_round);  // order: relaxed, `word` above has acquired it
  member.arrived_buckets = entry.arrived, member.joined_ns = entry.joined_ns;
  member.last_commit_ns = entry.last_commit_ns, member.last_commit_round = entry.last_commit_round;
  member.label.assign(entry.label, strnlen(entry.label, sizeof entry.label));
  return member;
}

void take_rounds(const InstanceView& view, Snapshot& snapshot) {
  for (std::uint64_t round = snapshot.closed_round; round > 0 && snapshot.closed_round - round < kRecords; --round) {
    RoundSnapshot taken;
    if (view.record(round, taken.record) != Status::ok) continue;
    for (std::size_t group = 0; group < view.layout().groups().size(); ++group) {
      double weight = 0;
      if (view.group_weight(round, group, weight) == Status::ok) taken.group_weights.push_back(weight);
    }
    if (taken.group_weights.size() == view.layout().groups().size()) snapshot.rounds.push_back(std::move(taken));
  }
}

}  // namespace

std::vector<AwaitedWorker> awaited_in(const BeaconData& beacon) {
  std::vector<AwaitedWorker> awaited;
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank)
    if (const ListedWorker& listed = beacon.listed[rank]; listed.generation != 0 && listed.takes_part != 0) awaited.push_back({static_cast<int>(rank), listed.pid});
  return awaited;
}

void take_events(const Control& control, Snapshot& snapshot) {
  const std::uint64_t written = load_acquire(control.words->events);  // order: acquire, pairs with Publisher::event
  for (std::uint64_t number = written > kEvents ? written - kEvents : 0; number < written; ++number) {
    EventSnapshot taken{number, {}};
    const bool whole = try_read_record(control.events[number % kEvents], taken.event);
    if (!whole || taken.event.sequence != 2 * (number / kEvents + 1)) continue;  // overwritten meanwhile
    taken.event.text[sizeof taken.event.text - 1] = '\0';
    snapshot.events.push_back(taken);
  }
}

namespace {

// order: relaxed (all), single words that are shown to people.
void take_words(const ControlWords& words, Snapshot& snapshot) {
  snapshot.state = static_cast<ServerState>(load_relaxed(words.state));
  snapshot.progress_ns = load_relaxed(words.progress_ns), snapshot.opened_ns = load_relaxed(words.opened_ns);
  snapshot.first_commit_ns = load_relaxed(words.first_commit_ns), snapshot.open_members = load_relaxed(words.members);
  snapshot.bytes_reduced = load_relaxed(words.bytes_reduced);
}

void take_header(const ControlHeader& header, Snapshot& snapshot) {
  snapshot.instance.assign(header.instance, strnlen(header.instance, sizeof header.instance));
  snapshot.incarnation = header.object.incarnation, snapshot.fingerprint = header.object.fingerprint;
  snapshot.daemon_pid = header.daemon_pid, snapshot.op = static_cast<int>(header.op);
  snapshot.max_workers = header.max_workers, snapshot.expect = header.expect, snapshot.reducer_threads = header.reducer_threads;
  snapshot.gradient_bytes = header.gradient_bytes, snapshot.bucket_bytes = header.bucket_bytes, snapshot.started_ns = header.started_ns;
  snapshot.rejoin_timeout_ns = header.rejoin_timeout_ns;
}

// The new server's beacon lists those of the old one that are not back too; its control object does not.
void take_awaited(const BeaconData& beacon, const Control& control, Snapshot& snapshot) {
  if (beacon.incarnation != snapshot.incarnation || snapshot.opened_ns != 0 || !snapshot.daemon_alive) return;
  for (const AwaitedWorker& listed : awaited_in(beacon)) {
    const MemberEntry& entry = control.members[listed.rank];
    const std::uint64_t word = load_relaxed(entry.word);  // order: relaxed, shown to people; nothing is read through it
    if (generation_of(word) != beacon.listed[listed.rank].generation) snapshot.awaited.push_back(listed);
  }
}

}  // namespace

struct Watcher::Impl {
  std::string instance;
  Connection connection;
  std::unique_ptr<InstanceView> view;
  WorkerWords words;

  // Asks again until the server has a layout.
  void look_for_layout() {
    if (view) return;
    try {
      std::vector<UniqueFd> fds;
      const auto answer = ask<ObserveOk>(connection, Observe{}, {}, Deadline::after(kAskTimeoutNs), 3, &fds);
      view = std::make_unique<InstanceView>(MemFd(std::move(fds[0])), MemFd(std::move(fds[1])), MemFd(std::move(fds[2])), answer.incarnation);
    } catch (const Error& error) {
      if (error.status() != Status::not_found) throw;
      return;
    }
    WorkerWords::Parts parts;
    parts.control = view->control().words, parts.daemon_pidfd = connection.daemon_pidfd.get();
    words = WorkerWords(parts);
  }
};

Watcher::Watcher(const std::string& instance) : impl_(std::make_unique<Impl>()) {
  impl_->instance = instance;
  impl_->connection = connect_to(instance, Deadline::after(kAskTimeoutNs));
  impl_->look_for_layout();
}
Watcher::~Watcher() = default;
Watcher::Watcher(Watcher&&) noexcept = default;

const Layout* Watcher::layout() const { return impl_->view ? &impl_->view->layout() : nullptr; }

std::optional<Snapshot> Watcher::take() const {
  impl_->look_for_layout();
  if (!impl_->view) return std::nullopt;
  const InstanceView& view = *impl_->view;
  Snapshot snapshot;
  take_header(view.header(), snapshot);
  take_words(*view.control().words, snapshot);
  // Only while no round is open, and before the members: who comes back meanwhile is not awaited.
  const auto beacon = snapshot.opened_ns == 0 ? read_beacon(geteuid(), impl_->instance) : std::nullopt;
  snapshot.taken_ns = static_cast<std::uint64_t>(now_ns());
  snapshot.daemon_alive = impl_->words.daemon_lives();
  snapshot.closed_round = view.closed_round();
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank)
    if (auto member = take_member(view.control().members[rank], static_cast<int>(rank))) snapshot.members.push_back(std::move(*member));
  for (std::size_t i = 0; i < view.header().buckets; ++i) {
    const BucketProgress& shared = view.control().buckets[i];
    // order: relaxed (all), single words that are shown to people.
    snapshot.buckets.push_back({load_relaxed(shared.reduced_round), load_relaxed(shared.arrived), load_relaxed(shared.reductions)});
  }
  if (beacon) take_awaited(*beacon, view.control(), snapshot);
  take_rounds(view, snapshot);
  take_events(view.control(), snapshot);
  return snapshot;
}

const char* to_string(MemberState state) {
  switch (state) {
    case MemberState::free: return "free";
    case MemberState::attached: return "attached";
    case MemberState::ready: return "ready";
    case MemberState::member: return "member";
    case MemberState::paused: return "paused";
    case MemberState::gone: return "gone";
  }
  return "?";
}

const char* to_string(ServerState state) {
  switch (state) {
    case ServerState::running: return "running";
    case ServerState::draining: return "draining";
    case ServerState::stopped: return "stopped";
  }
  return "?";
}

const char* to_string(EventKind kind) {
  constexpr const char* kNames[] = {"?", "started", "joined", "admitted", "left", "died", "evicted", "paused", "resumed", "draining", "refused", "rejoined", "missing"};
  const auto index = static_cast<std::uint32_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "?";
}

const char* op_name(int op) {
  switch (op) {
    case GRADSHM_SUM: return "sum";
    case GRADSHM_MEAN: return "mean";
    case GRADSHM_WEIGHTED_MEAN: return "weighted-mean";
    default: return "?";
  }
}

}  // namespace gradshm::core
