// After a server was killed: its workers still have control, layout and slots, and hand them over.
//
//   start      the dead server's beacon lists living workers --> floor and list into our own beacon, ordinary joins are held back
//   hand-over  not listed, or has seen fewer rounds than the floor --> EVICTED
//              has seen more --> the floor rises; who came back with less is EVICTED, before closed_round says so
//              else --> its slot is mapped, its commit words count as they stand
//   end        all listed ones that live and take part are back, or rejoin-timeout --> the missing are struck off, round floor + 1 opens
//
// Checked with a model: docs/model.md. The first hand-over must not open the round: another survivor would skip it.
#include <sys/epoll.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "daemon/server.hpp"
#include "protocol/member_word.hpp"

namespace gradshm::core {

// What the killed server's control object says. Nobody writes it any more; checked all the same.
struct Server::HandedOver {
  ControlObject object;
  ControlHeader header;
  std::uint64_t closed_round = 0;
  std::uint64_t first_round = 0;          // of the worker that hands over
  MemberState state = MemberState::free;  // as above; free = the generation is another's
};

namespace {

MemFd duplicate(const UniqueFd& fd) { return MemFd(UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0))); }

bool takes_part(MemberState state) { return state == MemberState::ready || state == MemberState::member; }

// The first parameter that is in another group than options would put it in; "" if there is none.
std::string group_difference(const Layout& layout, const Manifest& manifest, const LayoutOptions& options) try {
  const Layout fresh(manifest, options);
  for (std::size_t i = 0; i < fresh.parameters().size(); ++i) {
    const std::string& asked = fresh.groups()[fresh.placements()[i].group];
    const std::string& given = layout.groups()[layout.placements()[layout.manifest().find(fresh.parameters()[i].id)].group];
    if (asked != given) return "with '" + fresh.parameters()[i].name + "' in group '" + given + "', not '" + asked + "'";
  }
  return "";
} catch (const Error& error) {
  return "with groups that these options cannot make: " + std::string(error.what());
}

const char* op_text(Op op) { return op == Op::sum ? "sum" : op == Op::mean ? "mean" : op == Op::weighted_mean ? "weighted-mean" : "?"; }

}  // namespace

// A pid is judged only where it means something: recorded, in our pid namespace, and not hidden from us.
bool Server::lives(const ListedWorker& worker) const {
  if (worker.pid <= 0 || is_hidden(worker.pid)) return true;
  const std::uint64_t start = pid_start_time(worker.pid);
  return worker.pid_start == 0 ? start != 0 : start == worker.pid_start;
}

void Server::begin_recovery(const BeaconData& dead) {
  if (options_.rejoin_timeout_ns == 0) return;
  const bool known_pids = dead.pid_namespace != 0 && dead.pid_namespace == own_pid_namespace();
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank) {
    ListedWorker listed = dead.listed[rank];
    if (!known_pids) listed.pid = 0;
    if (listed.generation != 0 && lives(listed)) absent_[rank] = listed;
  }
  await_survivors(dead.closed_round, "the server with pid " + std::to_string(dead.pid));
}

// Somebody removed the beacon: the first worker's copy of the control object says who was there.
void Server::begin_recovery(const HandedOver& first) {
  const bool known_pids = first.header.pid_namespace != 0 && first.header.pid_namespace == own_pid_namespace();
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank) {
    const MemberEntry& entry = first.object.view.members[rank];
    const std::uint64_t word = load_relaxed(entry.word);  // order: relaxed, its writer is dead
    const MemberState state = state_of(word);
    if (state == MemberState::free || state > MemberState::paused) continue;
    const ListedWorker listed{generation_of(word), 0, known_pids ? entry.pid : 0, takes_part(state) ? 1u : 0u};
    if (lives(listed)) absent_[rank] = listed;
  }
  await_survivors(first.closed_round, "a server whose beacon is gone");
}

void Server::await_survivors(std::uint64_t floor, const std::string& of_whom) {
  const auto count = std::count_if(absent_.begin(), absent_.end(), [](const ListedWorker& listed) { return listed.generation != 0; });
  if (count == 0) return;
  recovery_ = Recovery{now_ns() + options_.rejoin_timeout_ns, {}};
  floor_ = beacon_data_.closed_round = floor;
  if (rounds_) rounds_->hold(floor);
  options_.log(LogLevel::warning, of_whom + " was killed after round " + format_count(floor) + ": waiting up to " + format_seconds(options_.rejoin_timeout_ns) +
                                      " for its " + plural(static_cast<std::uint64_t>(count), "worker"));
}

void Server::tend_recovery() {
  for (ListedWorker& listed : absent_)
    if (listed.generation != 0 && !lives(listed)) listed = {};
  const bool all_back = std::none_of(absent_.begin(), absent_.end(), [](const ListedWorker& listed) { return listed.takes_part != 0; });
  if (all_back || now_ns() >= recovery_->until_ns) end_recovery();
}

void Server::end_recovery() {
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank) {
    ListedWorker& listed = absent_[rank];
    if (listed.generation == 0 || (listed.takes_part == 0 && listed.pid > 0)) continue;  // a paused one may come as long as it lives
    note(LogLevel::warning, EventKind::missing, nullptr, "worker " + std::to_string(rank) + " (pid " + std::to_string(listed.pid) + ") has not come back: evicted");
    listed = {};
  }
  const auto joins = std::exchange(recovery_->joins, {});
  recovery_.reset();
  if (!arena_ && given_layout_) make_arena(Layout(*std::exchange(given_layout_, std::nullopt), options_.layout), options_.expect);
  refresh(true);  // the missing are struck off before any round closes without them
  if (rounds_) rounds_->open_again();
  for (const auto& [id, packet] : joins)
    if (const auto found = sessions_.find(id); found != sessions_.end()) deliver(*found->second, packet);
}

void Server::rejoin(Session& session, const Packet& packet) {
  const auto message = parse<Rejoin>(packet, 5);
  if (!session.greeted || session.member || session.held_bytes != 0) throw Error(Status::corrupt, "a hand-over before the hello, or a second one");
  if (message.rank >= kMaxWorkers) throw Error(Status::corrupt, "a hand-over of a rank beyond " + std::to_string(kMaxWorkers - 1));
  if (draining_) throw Error(Status::no_server, "instance '" + options_.name + "' is stopping and takes no more workers");
  HandedOver old{open_control(duplicate(packet.fds[0])), {}, 0, 0, MemberState::free};
  std::memcpy(&old.header, old.object.view.header, sizeof old.header);
  const MemberEntry& entry = old.object.view.members[message.rank];
  // order: relaxed (all three), their writer is dead; the worker has seen that, and its message came behind it.
  const std::uint64_t word = load_relaxed(entry.word);
  old.closed_round = load_relaxed(old.object.view.words->closed_round);
  old.first_round = load_relaxed(entry.first_round);
  if (generation_of(word) == message.generation) old.state = state_of(word);
  const bool brings_layout = !arena_;
  try {
    check_listed(old, message);
    take_layout(packet, old);
    if (recovery_ && old.closed_round > floor_) raise_floor(old);
    take_back(session, packet, old, message);
  } catch (const Error& error) {
    if (brings_layout && arena_) drop_arena();
    // It does not ask again, so nobody should wait for it.
    const bool for_good = error.status() == Status::incompatible || error.status() == Status::layout_mismatch;
    if (for_good && absent_[message.rank].generation == message.generation) strike_off(message.rank);
    throw;
  } catch (...) {
    if (brings_layout && arena_) drop_arena();
    throw;
  }
}

void Server::check_listed(const HandedOver& old, const Rejoin& message) {
  const bool untouched = !recovery_ && (!rounds_ || rounds_->closed_round() == 0) &&
                         std::none_of(members_.begin(), members_.end(), [](const MemberPtr& member) { return member != nullptr; }) &&
                         std::none_of(absent_.begin(), absent_.end(), [](const ListedWorker& listed) { return listed.generation != 0; });
  if (untouched && options_.rejoin_timeout_ns != 0) begin_recovery(old);
  const std::string who = "worker " + std::to_string(message.rank) + " of the server that was killed ";
  const bool known = old.state != MemberState::free && old.state <= MemberState::paused && absent_[message.rank].generation == message.generation;
  if (!known) {
    if (absent_[message.rank].generation == message.generation) strike_off(message.rank);
    throw Error(Status::evicted, who + "came back too late, or was no member any more: attach again");
  }
  if (takes_part(old.state) && !recovery_) throw Error(Status::evicted, who + "came back when the rounds had gone on: attach again");
  // The beacon of the killed server was older than this worker's view, and the rounds of this one are in between.
  if (!recovery_ && rounds_ && old.closed_round > rounds_->closed_round()) {
    strike_off(message.rank);
    throw Error(Status::evicted, who + "has seen " + format_count(old.closed_round) + " rounds closed, this server only " + format_count(rounds_->closed_round()) + ": attach again");
  }
  if (old.state == MemberState::member && old.closed_round < floor_) {
    strike_off(message.rank);
    throw Error(Status::evicted, who + "has seen " + format_count(old.closed_round) + " rounds closed, another one " + format_count(floor_) + ": attach again");
  }
  if (old.header.op != static_cast<std::uint32_t>(options_.op))
    throw Error(Status::incompatible, "the server that was killed had --op " + std::string(op_text(static_cast<Op>(old.header.op))) + ", another --op than this one (" + op_text(options_.op) + "): restart it with the same options");
}

// Whoever is refused must not be waited for, here or by a successor.
void Server::strike_off(std::size_t rank) {
  absent_[rank] = {};
  refresh(true);
}

// Options that the killed server's layout decides against.
void Server::warn_of_ignored(const Layout& layout, const HandedOver& old) const {
  const std::uint64_t asked = options_.layout.bucket_bytes, given = old.header.bucket_bytes;
  const std::string kept = ": the layout of the server that was killed goes on, ";
  if (given != 0 && given != asked)
    options_.log(LogLevel::warning, "ignored: --bucket-bytes " + std::to_string(asked) + kept + "made with " + std::to_string(given));
  if (const std::string difference = group_difference(layout, given_layout_ ? *given_layout_ : layout.manifest(), options_.layout); !difference.empty())
    options_.log(LogLevel::warning, "ignored: --group, or groups of --layout" + kept + difference);
}

// The layout object of the killed server decides, so that no offset moves under a living slot.
void Server::take_layout(const Packet& packet, const HandedOver& old) {
  const std::string content = read_sealed(duplicate(packet.fds[1]), kMaxManifestBytes, "the layout object");
  Layout layout = decode_layout(content);
  if (old.header.object.fingerprint != layout.layout_fingerprint() || old.header.groups != layout.groups().size()) throw Error(Status::corrupt, "control and layout of the hand-over do not belong together");
  if (given_layout_) check_match(*given_layout_, layout.manifest(), false, options_.name);
  if (!arena_) {
    warn_of_ignored(layout, old);
    make_arena(std::move(layout), 0, old.header.bucket_bytes);
    publisher_->adopt_records(old.object.view, old.header.groups);
    return;
  }
  check_match(arena_->layout.manifest(), layout.manifest(), false, options_.name);
  if (encode_layout(arena_->layout) != content)
    throw Error(Status::layout_mismatch, "the killed server's layout has the same parameters in other places: restart it with the same --bucket-bytes and --group");
}

void Server::raise_floor(const HandedOver& old) {
  floor_ = old.closed_round;
  // Members first: whoever sees the new closed_round must find himself evicted if he has not seen that round.
  for (const MemberPtr& member : std::array(members_))
    if (member && member->state == MemberState::member)
      if (Session* behind = session_of(member)) evict(*behind, "evicted: it has seen fewer rounds closed than another survivor", true);
  publisher_->adopt_records(old.object.view, old.header.groups);
  rounds_->hold(floor_);
}

void Server::take_back(Session& session, const Packet& packet, const HandedOver& old, const Rejoin& message) {
  auto member = std::make_shared<Member>();
  member->rank = message.rank, member->generation = message.generation, member->state = old.state;
  member->first_round = old.first_round;
  member->pid = session.pid, member->pid_start = pid_start_time(session.pid), member->uid = session.uid;
  member->label.assign(message.label, strnlen(message.label, sizeof message.label));
  member->joined_ns = static_cast<std::uint64_t>(now_ns());
  member->partial = message.partial != 0, member->came_back = true;
  member->contributions.resize(arena_->layout.buckets().size());
  admit_manifest(packet.fds[4], member->partial, *member);
  const MemFd slot = duplicate(packet.fds[2]);
  check_slot(slot, arena_->shape);
  member->slot = Mapping(slot, Mapping::Access::read_only, arena_->shape.total, "slot", true);
  member->slot_reader = reopen_read_only(slot);
  member->doorbell.reset(fcntl(packet.fds[3].get(), F_DUPFD_CLOEXEC, 0));
  if (!member->doorbell) throw system_error("dup of a doorbell", errno);
  watch(member->doorbell.get(), Source::doorbell, session.id, EPOLLIN | EPOLLET);
  session.member = member;
  members_[member->rank] = member;
  absent_[member->rank] = {};
  rounds_->rejoined(member);  // its word, before the answer
  note(LogLevel::info, EventKind::rejoined, member.get(), "came back after round " + format_count(old.closed_round));
  refresh(true);
  RejoinOk reply;
  reply.incarnation = incarnation_;
  const std::array<int, 2> fds{arena_->control.file.fd(), arena_->result.file.fd()};
  if (!send_message(session.socket.get(), reply, fds)) throw Error(Status::corrupt, "it does not read its answers");
}

}  // namespace gradshm::core
