#include "protocol/wire.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/text.hpp"

namespace gradshm::core {
namespace {

// True if descriptors were lost on the way.
bool take_fds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return (message.msg_flags & MSG_CTRUNC) != 0;
}

void check_header(const std::byte* bytes, std::size_t got, bool truncated) {
  MessageHeader header;
  if (got < sizeof header) throw Error(Status::corrupt, "a message of " + std::to_string(got) + " bytes is too short to be gradshm's");
  std::memcpy(&header, bytes, sizeof header);
  if (header.magic != kWireMagic) throw Error(Status::corrupt, "a message does not start with gradshm's magic: something else speaks on this socket");
  if (header.version != kWireVersion)
    throw Error(Status::incompatible, "the other side speaks wire version " + std::to_string(header.version) + ", this one " +
                                          std::to_string(kWireVersion) + ": use one version of gradshm on both sides");
  if (truncated || header.length != got) throw Error(Status::corrupt, "a message says " + std::to_string(header.length) + " bytes and has others");
}

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * kMaxFds);

}  // namespace

Received receive_packet(int socket, Packet& ret_packet) {
  std::array<std::byte, kMaxMessageBytes> buffer;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control.data(), message.msg_controllen = control.size();
  ssize_t got = 0;
  // ECONNRESET comes once, where the peer died with unread data; what it had sent before that is still there.
  int resets = 0;
  do got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && (errno == EINTR || (errno == ECONNRESET && ++resets == 1)));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::would_block;
  if (got < 0 && errno != ECONNRESET) throw system_error("recvmsg", errno);
  Packet packet;
  const bool lost = got >= 0 && take_fds(message, packet.fds);
  if (got <= 0) return Received::end_of_file;
  if (lost) throw Error(Status::corrupt, "descriptors of a message were lost (MSG_CTRUNC): raise the limit of open files (ulimit -n)");
  check_header(buffer.data(), static_cast<std::size_t>(got), (message.msg_flags & MSG_TRUNC) != 0);
  packet.bytes.assign(buffer.begin(), buffer.begin() + got);
  MessageHeader header;
  std::memcpy(&header, buffer.data(), sizeof header);
  packet.type = static_cast<MessageType>(header.type);
  ret_packet = std::move(packet);
  return Received::packet;
}

bool send_packet(int socket, const void* message, std::size_t bytes, std::span<const int> fds) noexcept {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec part{const_cast<void*>(message), bytes};
  msghdr packet{};
  packet.msg_iov = &part, packet.msg_iovlen = 1;
  if (!fds.empty() && fds.size() <= kMaxFds) {
    packet.msg_control = control.data(), packet.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent = 0;
  do sent = sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes);
}

std::uint32_t sequence_of(const Packet& packet) noexcept {
  MessageHeader header;
  std::memcpy(&header, packet.bytes.data(), sizeof header);  // receive_packet has seen that it is there
  return header.reserved;
}

Packet await_packet(int socket, const Deadline& deadline) {
  while (true) {
    Packet packet;
    switch (receive_packet(socket, packet)) {
      case Received::packet: return packet;
      case Received::end_of_file: throw Error(Status::daemon_lost, "the server closed the connection");
      case Received::would_block: break;
    }
    if (deadline.passed()) throw Error(Status::timeout, "the server did not answer in time");
    pollfd wait{socket, POLLIN, 0};
    const std::int64_t slice_ms = std::min<std::int64_t>(deadline.remaining_ns() / 1'000'000 + 1, 60'000);
    if (poll(&wait, 1, static_cast<int>(slice_ms)) < 0 && errno != EINTR) throw system_error("poll", errno);
  }
}

void check_packet(const Packet& packet, MessageType type, std::size_t bytes, std::size_t fds) {
  if (packet.type == MessageType::error && type != MessageType::error) {
    const auto reply = parse<ErrorReply>(packet);
    const std::size_t length = std::min<std::size_t>(reply.text_bytes, sizeof reply.text);
    const bool known = reply.code < 0 && reply.code >= static_cast<int>(Status::internal);
    throw Error(known ? static_cast<Status>(reply.code) : Status::corrupt, std::string(reply.text, length));
  }
  if (packet.type != type)
    throw Error(Status::corrupt, "a message of type " + std::to_string(static_cast<int>(packet.type)) + " came where type " +
                                     std::to_string(static_cast<int>(type)) + " was expected");
  if (packet.bytes.size() != bytes) throw Error(Status::corrupt, "a message of type " + std::to_string(static_cast<int>(type)) + " has a wrong length");
  if (packet.fds.size() != fds)
    throw Error(Status::corrupt, "a message brought " + std::to_string(packet.fds.size()) + " descriptors instead of " + std::to_string(fds));
}

ErrorReply error_reply(Status status, const std::string& sentence) {
  ErrorReply reply;
  reply.code = static_cast<std::int32_t>(status);
  reply.text_bytes = static_cast<std::uint32_t>(std::min(sentence.size(), sizeof reply.text));
  std::memcpy(reply.text, sentence.data(), reply.text_bytes);
  return reply;
}

}  // namespace gradshm::core
