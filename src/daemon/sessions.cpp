// Connections: accept, hello, commands, end. What a join needs stands in joining.cpp.
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
#include "base/pidfd.hpp"
#include "base/text.hpp"
#include "daemon/server.hpp"

namespace gradshm::core {
namespace {

constexpr std::size_t kMaxSessions = 2048;

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
      identify_peer(*session, !options_.socket_group.empty());
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
      case MessageType::rejoin: return rejoin(session, packet);
      case MessageType::observe: return observe(session, packet);
      case MessageType::observe_slot: return observe_slot(session, packet);
      case MessageType::command: return command(session, packet);
      default: throw Error(Status::corrupt, "a message of type " + std::to_string(static_cast<int>(packet.type)) + " is not for a server");
    }
  } catch (const Error& error) {
    if (error.status() == Status::corrupt || error.status() == Status::incompatible) throw;
    // Observers ask again and again until there is a layout; that is no news.
    const std::string what = "refused pid " + std::to_string(session.pid) + ": " + error.what();
    if (packet.type == MessageType::observe || packet.type == MessageType::observe_slot) options_.log(LogLevel::debug, what);
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

void Server::observe_slot(Session& session, const Packet& packet) {
  const auto message = parse<ObserveSlot>(packet);
  if (!session.greeted) throw Error(Status::corrupt, "a request before the hello");
  if (!arena_) throw Error(Status::not_found, "instance '" + options_.name + "' has no layout yet, and no slots");
  if (message.parameter >= arena_->layout.parameters().size()) throw Error(Status::invalid, "parameter index " + std::to_string(message.parameter) + " is out of range");
  const MemberPtr member = message.rank < members_.size() ? members_[message.rank] : nullptr;
  const std::string who = "worker " + std::to_string(message.rank) + " of '" + options_.name + "'";
  if (!member) throw Error(Status::not_found, "there is no " + who + "; there are " + ranks_text());
  if (!member->slot) throw Error(Status::not_found, who + " has not allocated its slot yet");
  if (member->partial && !member->named[message.parameter])
    throw Error(Status::not_found, who + " registered a part of the layout, without '" + escape(arena_->layout.parameters()[message.parameter].name) + "'");
  if (!member->slot_reader) throw Error(Status::full, "the slot of " + who + " cannot be shown: the server had no descriptor left for that when it joined");
  ObserveSlotOk reply;
  reply.incarnation = incarnation_, reply.generation = member->generation, reply.pid = member->pid;
  const std::array<int, 1> fds{member->slot_reader.get()};
  if (!send_message(session.socket.get(), reply, fds)) throw Error(Status::corrupt, "it does not read its answers");
}

// "workers 0, 1, 7"; "no workers".
std::string Server::ranks_text() const {
  std::string text;
  for (std::size_t rank = 0; rank < members_.size(); ++rank)
    if (members_[rank]) text += (text.empty() ? "workers " : ", ") + std::to_string(rank);
  return text.empty() ? "no workers" : text;
}

void Server::command(Session& session, const Packet& packet) {
  const auto message = parse<Command>(packet);
  if (!session.member && session.held_bytes != 0) throw Error(Status::evicted, "this worker has left or was evicted: detach and attach again");
  if (!session.member) throw Error(Status::corrupt, "a command of a connection that has not joined");
  const MemberPtr member = session.member;
  const auto kind = static_cast<CommandKind>(message.kind);
  if (kind != CommandKind::allocated && kind != CommandKind::leave && !member->slot) throw Error(Status::corrupt, "a command before the slot is allocated");
  const bool takes_part = member->state == MemberState::member || member->state == MemberState::ready;
  switch (kind) {
    case CommandKind::allocated: allocated(session, message.value != 0); break;
    case CommandKind::ready:
    case CommandKind::resume:
      if (!takes_part) list_as_taking_part(*member), rounds_->ready(member);
      if (kind == CommandKind::resume) note(LogLevel::info, EventKind::resumed, member.get(), "resumed");
      break;
    case CommandKind::pause:
      if (member->state != MemberState::paused) rounds_->paused(member), note(LogLevel::info, EventKind::paused, member.get(), "paused");
      break;
    case CommandKind::leave: forget_member(member, EventKind::left, "left"), session.member = nullptr, session.held_bytes = arena_->shape.total; break;
    default: throw Error(Status::corrupt, "an unknown command");
  }
  refresh(true);  // before the answer: a successor must know who takes part
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

Session* Server::session_of(const MemberPtr& member) noexcept {
  for (const auto& [id, session] : sessions_)
    if (session->member == member) return session.get();
  return nullptr;
}

// Its process may write on into the slot for as long as it likes: nobody reads there any more. The session stays, to know when that ends.
void Server::evict(Session& session, const std::string& why, bool keep_connection) {
  const MemberPtr member = std::move(session.member);
  session.member = nullptr;
  session.held_bytes = arena_->shape.total;
  if (!keep_connection) unwatch(session.socket), session.socket.reset();
  forget_member(member, EventKind::evicted, why);
}

void Server::end_session(Session& session, EventKind how, const std::string& why) {
  const MemberPtr member = session.member;
  unwatch(session.socket), unwatch(session.pidfd);
  if (recovery_) std::erase_if(recovery_->joins, [&](const auto& held) { return held.first == session.id; });
  sessions_.erase(session.id);
  if (member) forget_member(member, how, why);
}

}  // namespace gradshm::core
