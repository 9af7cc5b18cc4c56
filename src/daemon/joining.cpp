// Connections: accept, hello, join, commands, end.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "daemon/server.hpp"

namespace gradshm::core {
namespace {

constexpr std::size_t kMaxSessions = 2048;
constexpr int kDeathWaitMs = 5;
constexpr const char* kDied = "its process ended without leaving";

UniqueFd own_pidfd() {
  UniqueFd fd(static_cast<int>(syscall(434 /* pidfd_open, linux 5.3 */, getpid(), 0)));
  if (!fd) throw system_error("pidfd_open (Linux 5.4 or newer is needed)", errno);
  return fd;
}

std::string label_of(const char (&label)[kLabelBytes]) { return {label, strnlen(label, sizeof label)}; }

}  // namespace

void Server::accept_all() {
  while (true) {
    UniqueFd socket_fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket_fd && (errno == EMFILE || errno == ENFILE)) return refuse_for_want_of_fds();
    if (!socket_fd) return;
    auto session = std::make_unique<Session>();
    session->id = next_id_++;
    session->socket = std::move(socket_fd);
    try {
      identify_peer(*session);
      if (sessions_.size() >= kMaxSessions) throw Error(Status::full, "this server has " + std::to_string(kMaxSessions) + " connections, the most it takes");
      watch(session->socket.get(), Source::socket, session->id, EPOLLIN);
    } catch (const Error& error) {
      options_.log(LogLevel::warning, "connection of pid " + std::to_string(session->pid) + " refused: " + error.what());
      [[maybe_unused]] const bool sent = send_message(session->socket.get(), error_reply(error.status(), error.what()));
      continue;
    }
    sessions_.emplace(session->id, std::move(session));
  }
}

// Out of descriptors: the waiting connection must be taken off the queue all the same, or the loop would spin on it.
void Server::refuse_for_want_of_fds() {
  spare_fd_.reset();
  UniqueFd socket_fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const auto reply = error_reply(Status::full, "the server is out of file descriptors: raise its limit (ulimit -n)");
  [[maybe_unused]] const bool sent = socket_fd && send_message(socket_fd.get(), reply);
  socket_fd.reset();
  spare_fd_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  options_.log(LogLevel::error, "out of file descriptors: a connection was refused");
}

void Server::receive(Session& session) {
  // A few packets a turn: one connection cannot keep the loop to itself.
  for (int i = 0; i < 8; ++i) {
    Packet packet;
    switch (receive_packet(session.socket.get(), packet)) {
      case Received::would_block: return;
      case Received::end_of_file:
        // A killed process closes its descriptors a little before its pidfd says so. Who has told us that he leaves is no member here.
        return session.process_ended(session.member ? kDeathWaitMs : 0) ? end_session(session, EventKind::died, kDied)
                                                                        : end_session(session, EventKind::left, "closed its connection");
      case Received::packet: answer(session, packet);
    }
  }
}

// A request that cannot be met gets an ErrorReply and the connection stays; nonsense throws Error(corrupt), which ends it.
void Server::answer(Session& session, const Packet& packet) {
  try {
    switch (packet.type) {
      case MessageType::hello: return hello(session, packet);
      case MessageType::join: return join(session, packet);
      case MessageType::observe: return observe(session, packet);
      case MessageType::command: return command(session, packet);
      default: throw Error(Status::corrupt, "a message of type " + std::to_string(static_cast<int>(packet.type)) + " is not for a server");
    }
  } catch (const Error& error) {
    if (error.status() == Status::corrupt || error.status() == Status::incompatible) throw;
    // Observers ask again and again until there is a layout; that is no news.
    const std::string what = "refused pid " + std::to_string(session.pid) + ": " + error.what();
    if (packet.type == MessageType::observe) options_.log(LogLevel::debug, what);
    else note(LogLevel::warning, EventKind::refused, session.member.get(), what);
    ErrorReply reply = error_reply(error.status(), error.what());
    reply.header.reserved = sequence_of(packet);
    if (!send_message(session.socket.get(), reply))
      throw Error(Status::corrupt, "it does not read its answers");
  } catch (const std::bad_alloc&) {
    [[maybe_unused]] const bool sent = send_message(session.socket.get(), error_reply(Status::no_space, "the server is out of memory for this request"));
  }
}

void Server::hello(Session& session, const Packet& packet) {
  const auto message = parse<Hello>(packet, 1);
  if (session.greeted) throw Error(Status::corrupt, "a second hello on one connection");
  if (message.abi_major != kAbiMajor || message.abi_hash != abi_hash())
    throw Error(Status::incompatible, "this server is gradshm " GRADSHM_VERSION_TEXT " (ABI hash " + format_hex(abi_hash()) +
                                          "), you are gradshm " + escape(std::string(message.version, strnlen(message.version, sizeof message.version))) +
                                          " (ABI hash " + format_hex(message.abi_hash) + "): use one version on both sides");
  check_pidfd(packet.fds[0], session.pid);
  session.pidfd.reset(fcntl(packet.fds[0].get(), F_DUPFD_CLOEXEC, 0));
  if (!session.pidfd) throw system_error("dup of a pidfd", errno);
  watch(session.pidfd.get(), Source::pidfd, session.id, EPOLLIN);
  session.greeted = true;
  HelloOk reply;
  reply.incarnation = incarnation_, reply.pid = getpid(), reply.parameters = arena_ ? static_cast<std::uint32_t>(arena_->layout.parameters().size()) : 0u;
  const UniqueFd ours = own_pidfd();
  const std::array<int, 1> fds{ours.get()};
  if (!send_message(session.socket.get(), reply, fds)) throw Error(Status::corrupt, "it does not read its answers");
}

void Server::observe(Session& session, const Packet& packet) {
  static_cast<void>(parse<Observe>(packet));
  if (!session.greeted) throw Error(Status::corrupt, "a request before the hello");
  if (!arena_) throw Error(Status::not_found, "instance '" + options_.name + "' has no layout yet: it takes that of the first worker that attaches");
  ObserveOk reply;
  reply.incarnation = incarnation_;
  const std::array<int, 3> fds{arena_->control.file.fd(), arena_->layout_file.fd(), arena_->result.file.fd()};
  if (!send_message(session.socket.get(), reply, fds)) throw Error(Status::corrupt, "it does not read its answers");
}

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

void Server::command(Session& session, const Packet& packet) {
  const auto message = parse<Command>(packet);
  if (!session.member) throw Error(Status::corrupt, "a command of a connection that has not joined");
  const MemberPtr member = session.member;
  const auto kind = static_cast<CommandKind>(message.kind);
  if (kind != CommandKind::allocated && kind != CommandKind::leave && !member->slot) throw Error(Status::corrupt, "a command before the slot is allocated");
  const bool takes_part = member->state == MemberState::member || member->state == MemberState::ready;
  switch (kind) {
    case CommandKind::allocated: allocated(session, message.value != 0); break;
    case CommandKind::ready:
    case CommandKind::resume:
      if (!takes_part) rounds_->ready(member);
      if (kind == CommandKind::resume) note(LogLevel::info, EventKind::resumed, member.get(), "resumed");
      break;
    case CommandKind::pause:
      if (member->state != MemberState::paused) rounds_->paused(member), note(LogLevel::info, EventKind::paused, member.get(), "paused");
      break;
    case CommandKind::leave: forget_member(member, EventKind::left, "left"), session.member = nullptr; break;
    default: throw Error(Status::corrupt, "an unknown command");
  }
  Ack ack;
  ack.header.reserved = sequence_of(packet);
  if (!send_message(session.socket.get(), ack)) throw Error(Status::corrupt, "it does not read its answers");
}

void Server::forget_member(const MemberPtr& member, EventKind how, const std::string& why) {
  if (members_[member->rank] == member) members_[member->rank] = nullptr;
  rounds_->remove(member);
  const bool bad = how == EventKind::died || how == EventKind::evicted;
  note(bad ? LogLevel::warning : LogLevel::info, how, member.get(), why);
  unwatch(member->doorbell);
  member->doorbell.reset();
  refresh(true);
}

void Server::end_session(Session& session, EventKind how, const std::string& why) {
  const MemberPtr member = session.member;
  unwatch(session.socket), unwatch(session.pidfd);
  sessions_.erase(session.id);
  if (member) forget_member(member, how, why);
}

}  // namespace gradshm::core
