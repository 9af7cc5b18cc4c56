// A greeted connection to a server.
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "protocol/wire.hpp"

namespace gradshm::core {

struct Connection {
  UniqueFd socket;
  UniqueFd daemon_pidfd;
  std::uint64_t incarnation = 0;
  int daemon_pid = 0;
  std::size_t parameters = 0;  // of its layout; 0 = it has none yet
};

// Throws Error: no_server (and whether one died there), permission, incompatible, timeout, unsupported.
[[nodiscard]] Connection connect_to(const std::string& instance, const Deadline& deadline);

// Where the server has hung up, what it said before it did is thrown.
template <class Request>
void send_request(const Connection& connection, const Request& request, std::span<const int> fds) {
  if (send_message(connection.socket.get(), request, fds)) return;
  Packet last;
  if (receive_packet(connection.socket.get(), last) == Received::packet) static_cast<void>(parse<Ack>(last));
  throw Error(Status::daemon_lost, "the server does not take the request");
}

// Sends a request and returns the answer; an ErrorReply is thrown as the Error it carries.
template <class Answer, class Request>
Answer ask(const Connection& connection, const Request& request, std::span<const int> fds, const Deadline& deadline, std::size_t answer_fds,
           std::vector<UniqueFd>* ret_fds = nullptr) {
  send_request(connection, request, fds);
  Packet packet = await_packet(connection.socket.get(), deadline);
  const auto answer = parse<Answer>(packet, answer_fds);
  if (ret_fds != nullptr) *ret_fds = std::move(packet.fds);
  return answer;
}

}  // namespace gradshm::core
