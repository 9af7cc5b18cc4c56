#include "client/connection.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/pidfd.hpp"
#include "memory/beacon.hpp"
#include "memory/rundir.hpp"

namespace gradshm::core {
namespace {

Error no_server(const std::string& instance, const std::string& path, int error_number) {
  if (error_number == EACCES || error_number == EPERM)
    return {Status::permission, "the socket " + path + " is not open to uid " + std::to_string(geteuid()) +
                                    ": run as the server's user, or as a member of the group that gradshmd --socket-group names (which must be able to pass every directory of that path)"};
  const auto beacon = read_beacon(geteuid(), instance);
  const bool killed = beacon && !is_alive(*beacon);
  const std::string dead = killed ? " (one with pid " + std::to_string(beacon->pid) + " was killed)" : "";
  const std::string same = killed ? " and the --op and other options that it had" : "";
  return {Status::no_server, "no server '" + instance + "' answers at " + path + dead + ": start one with `gradshmd --name " + instance + "`" + same +
                                 ", or see `gradshm ls`"};
}

UniqueFd connect_socket(const std::string& instance, const Deadline& deadline) {
  const std::string path = socket_path(instance);
  UniqueFd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd) throw system_error("socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  while (connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EAGAIN && errno != EINTR) throw no_server(instance, path, errno);
    if (deadline.passed()) throw Error(Status::timeout, "the server's queue of connections stays full");
    const timespec pause{0, 1'000'000};  // EAGAIN: its backlog is full
    nanosleep(&pause, nullptr);
  }
  return socket_fd;
}

// In /tmp anybody could have made our directory first; where the user chose the place himself, he chose whom to trust.
void check_server(int socket_fd, const std::string& instance) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw system_error("SO_PEERCRED", errno);
  if (peer.uid != geteuid() && peer.uid != 0 && !run_directory_is_chosen())
    throw Error(Status::permission, "the server '" + instance + "' runs as uid " + std::to_string(peer.uid) + ", not as you (uid " +
                                        std::to_string(geteuid()) + "): set GRADSHM_DIR if that is intended");
}

}  // namespace

Connection connect_to(const std::string& instance, const Deadline& deadline) {
  Connection connection;
  connection.socket = connect_socket(instance, deadline);
  check_server(connection.socket.get(), instance);
  const UniqueFd ours = own_pidfd();
  Hello hello;
  hello.abi_hash = abi_hash();
  std::vector<UniqueFd> fds;
  const std::array<int, 1> sent{ours.get()};
  const auto answer = ask<HelloOk>(connection, hello, sent, deadline, 1, &fds);
  connection.daemon_pidfd = std::move(fds[0]);
  connection.incarnation = answer.incarnation, connection.daemon_pid = answer.pid, connection.parameters = answer.parameters;
  return connection;
}

}  // namespace gradshm::core
