// Joining: the layout, the rank, the slot.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"
#include "daemon/server.hpp"

namespace gradshm::core {
namespace {

std::string label_of(const char (&label)[kLabelBytes]) { return {label, strnlen(label, sizeof label)}; }

}  // namespace

void Server::drop_arena() noexcept {
  if (publisher_) publisher_->state(ServerState::stopped);  // an observer may have it mapped already
  rounds_.reset(), publisher_.reset(), arena_.reset();
  beacon_data_.parameters = beacon_data_.gradient_bytes = 0;
}

void Server::make_arena(Layout layout, unsigned expected_workers, std::uint64_t bucket_bytes) {
  unsigned threads = options_.reducer_threads;
  if (threads == 0) threads = HostReducer(0).threads();
  ServerOptions shown = options_;
  if (bucket_bytes != 0) shown.layout.bucket_bytes = bucket_bytes;
  arena_.emplace(std::move(layout), shown, incarnation_, threads, expected_workers);
  publisher_.emplace(*arena_);
  rounds_.emplace(*arena_, options_, *publisher_, [this](const MemberPtr& member, const std::string& why) {
    if (Session* session = session_of(member)) evict(*session, why, true);
  });
  publisher_->begin_wake_seq(static_cast<std::uint32_t>(incarnation_));  // random
  if (recovery_ || floor_ != 0) rounds_->hold(floor_);
  if (!recovery_) rounds_->open_again();
  publisher_->state(ServerState::running);
  publisher_->event(EventKind::started, nullptr, 1, "gradshmd " GRADSHM_VERSION_TEXT);
  beacon_data_.parameters = arena_->layout.parameters().size();
  beacon_data_.gradient_bytes = arena_->layout.gradient_bytes();
  options_.log(LogLevel::info, "layout " + format_hex(arena_->layout.layout_fingerprint()) + ": " +
                                   plural(arena_->layout.parameters().size(), "parameter") + ", " +
                                   plural(arena_->layout.buckets().size(), "bucket") + ", " + format_bytes(arena_->layout.gradient_bytes()) + " a slot");
}

// The first worker's manifest is the layout; every other must match it.
void Server::admit_manifest(const UniqueFd& manifest, bool partial, Member& member) {
  const MemFd file(UniqueFd(fcntl(manifest.get(), F_DUPFD_CLOEXEC, 0)));
  const Layout sent = decode_layout(read_sealed(file, kMaxManifestBytes, "the manifest"));
  const Manifest& mine = sent.manifest();
  if (!arena_ && partial)
    throw Error(Status::bad_layout, "instance '" + options_.name + "' has no layout yet, and a partial worker cannot give it one: "
                                    "start gradshmd with --layout, or attach a complete worker first");
  if (!arena_) make_arena(Layout(mine, options_.layout), options_.expect);
  check_match(arena_->layout.manifest(), mine, partial, options_.name);
  if (!partial) return;
  const Layout& layout = arena_->layout;
  member.named.assign(layout.parameters().size(), false);
  member.skips.assign(layout.buckets().size(), true);
  for (const Parameter& parameter : mine.parameters()) {
    const std::size_t index = layout.manifest().find(parameter.id);
    member.named[index] = true, member.skips[layout.placements()[index].bucket] = false;
  }
}

// A dead or closed holder is dropped now rather than when its event comes.
void Server::drop_if_ended(unsigned rank) {
  for (const auto& [id, session] : sessions_) {
    if (session->member != members_[rank]) continue;
    std::byte probe{};
    const bool closed = recv(session->socket.get(), &probe, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    if (session->process_ended(closed ? kDeathWaitMs : 0)) return end_session(*session, EventKind::died, kDied);
    if (closed) return end_session(*session, EventKind::left, "closed its connection");
    return;
  }
}

unsigned Server::choose_rank(int wanted) {
  if (wanted >= static_cast<int>(kMaxWorkers))
    throw Error(Status::invalid, "rank " + std::to_string(wanted) + " is out of range: it takes 0 to " + std::to_string(kMaxWorkers - 1));
  if (wanted >= 0 && members_[wanted]) drop_if_ended(static_cast<unsigned>(wanted));
  if (wanted >= 0 && members_[wanted])
    throw Error(Status::rank_taken, "rank " + std::to_string(wanted) + " of '" + options_.name + "' is taken by pid " +
                                        std::to_string(members_[wanted]->pid) + ": choose another, or let the server choose");
  std::array<bool, kMaxWorkers> taken{};
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank) {
    if (absent_[rank].generation != 0 && !lives(absent_[rank])) absent_[rank] = {};
    taken[rank] = members_[rank] != nullptr || absent_[rank].generation != 0;
  }
  if (wanted >= 0 && taken[wanted])
    throw Error(Status::rank_taken, "rank " + std::to_string(wanted) + " of '" + options_.name + "' belongs to pid " + std::to_string(absent_[wanted].pid) +
                                        ", which paused before the server was restarted: choose another, or let the server choose");
  const auto count = std::count(taken.begin(), taken.end(), true);
  if (count >= static_cast<std::ptrdiff_t>(options_.max_workers))
    throw Error(Status::full, "instance '" + options_.name + "' has " + plural(static_cast<std::uint64_t>(count), "worker") + ", the most it takes: start gradshmd with a larger --max-workers");
  if (wanted >= 0) return static_cast<unsigned>(wanted);
  return static_cast<unsigned>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

// What workers hold that were evicted, or left and did not detach, counts until they detach or end, so that a loop of those and attaches cannot take all memory.
void Server::check_budget() {
  const std::uint64_t slot = arena_->shape.total;
  const std::uint64_t budget = options_.memory_budget != 0 ? options_.memory_budget : checked_mul(slot, 2 * options_.max_workers).value_or(UINT64_MAX);
  std::uint64_t held = 0, workers = 1;
  for (std::size_t rank = 0; rank < kMaxWorkers; ++rank) workers += members_[rank] || absent_[rank].generation != 0 ? 1u : 0u;
  for (const auto& [id, session] : sessions_)
    if (!session->process_ended(0)) held += session->held_bytes;
  const std::uint64_t wanted = checked_mul(slot, workers).value_or(UINT64_MAX);
  if (wanted <= budget && held <= budget - wanted) return;
  const std::string of_others = held == 0 ? ": " : ", left and evicted workers that live on hold " + format_count(held) + ": detach their handles, or ";
  throw Error(Status::no_space, "the memory budget of '" + options_.name + "' is " + format_count(budget) + " bytes: " + plural(workers, "slot") +
                                    (workers == 1 ? " takes " : " with this one take ") + format_count(wanted) + of_others + "start gradshmd with a larger --memory-budget");
}

void Server::hold_join(Session& session, const Packet& packet) {
  for (const auto& [id, held] : recovery_->joins)
    if (id == session.id) throw Error(Status::corrupt, "a second join on one connection");
  Packet copy;
  copy.type = packet.type, copy.bytes = packet.bytes;
  for (const UniqueFd& fd : packet.fds) copy.fds.emplace_back(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  recovery_->joins.emplace_back(session.id, std::move(copy));
}

void Server::join(Session& session, const Packet& packet) {
  const auto message = parse<Join>(packet, 1);
  if (!session.greeted || session.member || session.held_bytes != 0) throw Error(Status::corrupt, "a join before the hello, or a second one");
  if (draining_) throw Error(Status::no_server, "instance '" + options_.name + "' is stopping and takes no more workers");
  if (recovery_) return hold_join(session, packet);
  const bool brings_layout = !arena_;
  try {
    admit(session, packet, message);
  } catch (...) {
    // A worker that is refused must not have brought the layout.
    if (brings_layout) drop_arena();
    throw;
  }
}

void Server::admit(Session& session, const Packet& packet, const Join& message) {
  auto member = std::make_shared<Member>();
  member->rank = choose_rank(message.rank);
  admit_manifest(packet.fds[0], message.partial != 0, *member);
  check_budget();
  member->generation = next_generation_++;
  member->pid = session.pid, member->pid_start = pid_start_time(session.pid), member->uid = session.uid, member->label = label_of(message.label);
  member->joined_ns = static_cast<std::uint64_t>(now_ns());
  member->partial = message.partial != 0;
  member->contributions.resize(arena_->layout.buckets().size());
  member->doorbell.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!member->doorbell) throw system_error("eventfd", errno);
  member->slot_file = create_slot(arena_->shape, incarnation_, arena_->layout.layout_fingerprint(), member->generation, member->rank);
  register_member(session, member);
}

void Server::register_member(Session& session, const MemberPtr& member) {
  watch(member->doorbell.get(), Source::doorbell, session.id, EPOLLIN | EPOLLET);
  publisher_->member(*member);  // before the answer: the worker looks at its word as soon as it has it
  members_[member->rank] = member;
  if (!send_join_ok(session, *member, member->slot_file)) {
    unwatch(member->doorbell);
    members_[member->rank] = nullptr;
    publisher_->free_entry(member->rank, member->generation);
    throw Error(Status::corrupt, "it does not read its answers");
  }
  session.member = member;
  note(LogLevel::info, EventKind::joined, member.get(), member->partial ? "joined with a part of the layout" : "joined");
}

bool Server::send_join_ok(Session& session, const Member& member, const MemFd& slot) {
  JoinOk reply;
  reply.generation = member.generation, reply.rank = member.rank, reply.slot_bytes = arena_->shape.total;
  const std::array<int, 5> fds{arena_->control.file.fd(), arena_->layout_file.fd(), arena_->result.file.fd(), slot.fd(), member.doorbell.get()};
  return send_message(session.socket.get(), reply, fds);
}

void Server::allocated(Session& session, bool ready) {
  Member& member = *session.member;
  // The answer may have been lost with the server that gave it.
  if (member.came_back) return member.state == MemberState::attached && ready ? rounds_->ready(session.member) : void();
  if (member.slot) throw Error(Status::corrupt, "a slot is allocated once");
  check_slot(member.slot_file, arena_->shape);
  member.slot = Mapping(member.slot_file, Mapping::Access::read_only, arena_->shape.total, "slot", true);
  member.slot_reader = reopen_read_only(member.slot_file);
  member.slot_file = {};  // the mapping keeps the memory, and no observer gets a descriptor that may write
  if (ready) rounds_->ready(session.member);
}

}  // namespace gradshm::core
