// What goes over the socket: fixed-size little-endian messages, one a SOCK_SEQPACKET packet, with descriptors beside them. Everything
// large (manifest, layout) is a sealed memfd.
//
//   client                              server
//   Hello  + [pidfd]              ->
//                                 <-    HelloOk + [pidfd]                     or ErrorReply
//   Join   + [manifest]           ->
//                                 <-    JoinOk  + [control, layout, result, slot, doorbell]
//   Command(allocated)            ->                                          the worker has taken its slot's pages
//                                 <-    Ack
//   Command(ready|pause|resume|leave) ->
//                                 <-    Ack
//   Rejoin + [control, layout, slot, doorbell, manifest] ->                   instead of Join, after a server was killed
//                                 <-    RejoinOk + [control, result]
//   Observe                       ->
//                                 <-    ObserveOk + [control, layout, result]
//   ObserveSlot                   ->
//                                 <-    ObserveSlotOk + [slot, read-only]
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "memory/control.hpp"

namespace gradshm::core {

static_assert(std::endian::native == std::endian::little, "messages and mapped objects are little-endian");

inline constexpr std::uint32_t kWireMagic = 0x57485347;  // "GSHW"
inline constexpr std::uint16_t kWireVersion = 1;
inline constexpr std::size_t kMaxMessageBytes = 4096;
inline constexpr std::size_t kMaxFds = 8;
inline constexpr std::uint64_t kMaxManifestBytes = 256u << 20;

enum class MessageType : std::uint16_t {
  hello = 1, hello_ok, join, join_ok, command, ack, observe, observe_ok, error, rejoin, rejoin_ok, observe_slot, observe_slot_ok
};
enum class CommandKind : std::uint32_t { allocated = 1, ready, pause, resume, leave };

struct MessageHeader {
  std::uint32_t magic = kWireMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t type = 0;
  std::uint32_t length = 0;  // of the whole message
  std::uint32_t reserved = 0;  // of a Command: its number, which the Ack or ErrorReply repeats
};

struct Hello {
  static constexpr auto kType = MessageType::hello;
  MessageHeader header;
  std::uint64_t abi_hash = 0;
  std::uint32_t abi_major = kAbiMajor, abi_minor = kAbiMinor;
  char version[16] = GRADSHM_VERSION_TEXT;
};

struct HelloOk {
  static constexpr auto kType = MessageType::hello_ok;
  MessageHeader header;
  std::uint64_t incarnation = 0;
  std::int32_t pid = 0;
  std::uint32_t parameters = 0;  // of the layout; 0 = there is none yet
};

struct Join {
  static constexpr auto kType = MessageType::join;
  MessageHeader header;
  std::int32_t rank = -1;       // -1 = the lowest free
  std::uint32_t partial = 0;
  char label[kLabelBytes] = {};
};

struct JoinOk {
  static constexpr auto kType = MessageType::join_ok;
  MessageHeader header;
  std::uint64_t generation = 0;
  std::uint64_t slot_bytes = 0;
  std::uint32_t rank = 0;
  std::uint32_t reserved = 0;
};

// A worker of a server that was killed hands over what it has from it.
struct Rejoin {
  static constexpr auto kType = MessageType::rejoin;
  MessageHeader header;
  std::uint64_t generation = 0;
  std::uint32_t rank = 0;
  std::uint32_t partial = 0;
  std::uint64_t incarnation = 0;  // of the server that was killed
  char label[kLabelBytes] = {};
};

struct RejoinOk {
  static constexpr auto kType = MessageType::rejoin_ok;
  MessageHeader header;
  std::uint64_t incarnation = 0;
};

struct Command {
  static constexpr auto kType = MessageType::command;
  MessageHeader header;
  std::uint32_t kind = 0;   // CommandKind
  std::uint32_t value = 0;  // allocated: 1 = ready at once
};

struct Ack {
  static constexpr auto kType = MessageType::ack;
  MessageHeader header;
};

struct Observe {
  static constexpr auto kType = MessageType::observe;
  MessageHeader header;
};

struct ObserveOk {
  static constexpr auto kType = MessageType::observe_ok;
  MessageHeader header;
  std::uint64_t incarnation = 0;
};

// A look into one worker's slot: it must have that parameter.
struct ObserveSlot {
  static constexpr auto kType = MessageType::observe_slot;
  MessageHeader header;
  std::uint32_t rank = 0;
  std::uint32_t parameter = 0;  // index in the layout
};

struct ObserveSlotOk {
  static constexpr auto kType = MessageType::observe_slot_ok;
  MessageHeader header;
  std::uint64_t incarnation = 0;
  std::uint64_t generation = 0;
  std::int32_t pid = 0;
  std::uint32_t reserved = 0;
};

struct ErrorReply {
  static constexpr auto kType = MessageType::error;
  MessageHeader header;
  std::int32_t code = 0;
  std::uint32_t text_bytes = 0;
  char text[3072] = {};
};

// A received packet with the descriptors that came along.
struct Packet {
  MessageType type{};
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
};

enum class Received { packet, would_block, end_of_file };

// One packet without blocking. Throws Error(corrupt) on a malformed header, a wrong length or lost descriptors (MSG_CTRUNC), and
// Error(incompatible) on another wire version.
[[nodiscard]] Received receive_packet(int socket, Packet& ret_packet);
// False: the peer's buffer is full or it has gone. Never raises SIGPIPE.
[[nodiscard]] bool send_packet(int socket, const void* message, std::size_t bytes, std::span<const int> fds) noexcept;
// The number in a received packet's header.
[[nodiscard]] std::uint32_t sequence_of(const Packet& packet) noexcept;
// Client side: waits for the next packet. Throws Error(timeout | daemon_lost).
[[nodiscard]] Packet await_packet(int socket, const Deadline& deadline);

template <class Message>
[[nodiscard]] bool send_message(int socket, Message message, std::span<const int> fds = {}) noexcept {
  static_assert(sizeof(Message) <= kMaxMessageBytes);
  message.header.type = static_cast<std::uint16_t>(Message::kType);
  message.header.length = sizeof(Message);
  return send_packet(socket, &message, sizeof(Message), fds);
}

// Throws Error(corrupt) unless the packet is such a message with that many descriptors; ErrorReply becomes the Error it carries.
void check_packet(const Packet& packet, MessageType type, std::size_t bytes, std::size_t fds);

template <class Message>
[[nodiscard]] Message parse(const Packet& packet, std::size_t fds = 0) {
  check_packet(packet, Message::kType, sizeof(Message), fds);
  Message message;
  __builtin_memcpy(&message, packet.bytes.data(), sizeof(Message));
  return message;
}

[[nodiscard]] ErrorReply error_reply(Status status, const std::string& sentence);

}  // namespace gradshm::core
