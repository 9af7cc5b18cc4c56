// Joining: the layout, the rank, the slot.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

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

void Server::make_arena(Manifest manifest) {
  unsigned threads = options_.reducer_threads;
  if (threads == 0) threads = HostReducer(0).threads();
  arena_.emplace(std::move(manifest), options_, incarnation_, threads);
  publisher_.emplace(*arena_);
  rounds_.emplace(*arena_, options_, *publisher_, [this](const MemberPtr& member, const std::string& why) {
    for (const auto& [id, session] : sessions_)
      if (session->member == member) return end_session(*session, EventKind::evicted, why);
  });
  publisher_->state(ServerState::running);
  publisher_->event(EventKind::started, nullptr, 1, "gradshmd " GRADSHM_VERSION_TEXT);
  beacon_data_.parameters = arena_->layout.parameters().size();
  beacon_data_.gradient_bytes = arena_->layout.gradient_bytes();
  options_.log(LogLevel::info, "layout " + format_hex(arena_->layout.layout_fingerprint()) + ": " +
                                   plural(arena_->layout.parameters().size(), "parameter") + ", " +
                                   plural(arena_->layout.buckets().size(), "bucket") + ", " + format_bytes(arena_->layout.gradient_bytes()) + " a slot");
}

// The first worker's manifest is the layout; every other must match it.
void Server::admit_manifest(const Packet& packet, bool partial, Member& member) {
  const MemFd file(UniqueFd(fcntl(packet.fds[0].get(), F_DUPFD_CLOEXEC, 0)));
  const Layout sent = decode_layout(read_sealed(file, kMaxManifestBytes, "the manifest"));
  const Manifest& mine = sent.manifest();
  if (!arena_ && partial)
    throw Error(Status::bad_layout, "instance '" + options_.name + "' has no layout yet, and a partial worker cannot give it one: "
                                    "start gradshmd with --layout, or attach a complete worker first");
  if (!arena_) make_arena(mine);
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
  const auto count = std::count_if(members_.begin(), members_.end(), [](const MemberPtr& member) { return member != nullptr; });
  if (count >= static_cast<std::ptrdiff_t>(options_.max_workers))
    throw Error(Status::full, "instance '" + options_.name + "' has " + plural(static_cast<std::uint64_t>(count), "worker") + ", the most it takes: start gradshmd with a larger --max-workers");
  if (wanted >= 0) return static_cast<unsigned>(wanted);
  return static_cast<unsigned>(std::find(members_.begin(), members_.end(), nullptr) - members_.begin());
}

void Server::join(Session& session, const Packet& packet) {
  const auto message = parse<Join>(packet, 1);
  if (!session.greeted || session.member) throw Error(Status::corrupt, "a join before the hello, or a second one");
  if (draining_) throw Error(Status::no_server, "instance '" + options_.name + "' is stopping and takes no more workers");
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
  admit_manifest(packet, message.partial != 0, *member);
  member->generation = next_generation_++;
  member->pid = session.pid, member->uid = session.uid, member->label = label_of(message.label);
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
  if (!send_join_ok(session, *member, member->slot_file)) {
    unwatch(member->doorbell);
    publisher_->free_entry(member->rank, member->generation);
    throw Error(Status::corrupt, "it does not read its answers");
  }
  session.member = member;
  members_[member->rank] = member;
  note(LogLevel::info, EventKind::joined, member.get(), member->partial ? "joined with a part of the layout" : "joined");
  refresh(true);
}

bool Server::send_join_ok(Session& session, const Member& member, const MemFd& slot) {
  JoinOk reply;
  reply.generation = member.generation, reply.rank = member.rank, reply.slot_bytes = arena_->shape.total;
  const std::array<int, 5> fds{arena_->control.file.fd(), arena_->layout_file.fd(), arena_->result.file.fd(), slot.fd(), member.doorbell.get()};
  return send_message(session.socket.get(), reply, fds);
}

void Server::allocated(Session& session, bool ready) {
  Member& member = *session.member;
  if (member.slot) throw Error(Status::corrupt, "a slot is allocated once");
  check_slot(member.slot_file, arena_->shape);
  member.slot = Mapping(member.slot_file, Mapping::Access::read_only, arena_->shape.total, "slot", true);
  member.slot_file = {};  // the mapping keeps the memory; one descriptor a worker less
  if (ready) rounds_->ready(session.member);
}

}  // namespace gradshm::core
