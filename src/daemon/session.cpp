#include "daemon/session.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "base/status.hpp"

namespace gradshm::core {

bool Session::process_ended(int timeout_ms) const noexcept {
  pollfd probe{pidfd.get(), POLLIN, 0};
  return pidfd && poll(&probe, 1, timeout_ms) == 1 && (probe.revents & POLLIN) != 0;
}

void identify_peer(Session& session, bool group_may_attach) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(session.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw system_error("SO_PEERCRED", errno);
  session.pid = peer.pid, session.uid = peer.uid;
  if (peer.uid != geteuid() && peer.uid != 0 && !group_may_attach)
    throw Error(Status::permission, "this server belongs to uid " + std::to_string(geteuid()) + ", you are uid " + std::to_string(peer.uid) +
                                        ": start it with --socket-group, or run both as one user");
}

void check_pidfd(const UniqueFd& fd, int pid) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd.get()));
  if (!info) throw Error(Status::system, "the server cannot read /proc/self/fdinfo: mount /proc, or raise its limit of open files (ulimit -n)");
  int said = 0;
  bool is_pidfd = false;
  for (std::string key, rest; info >> key; std::getline(info, rest))
    if (key == "Pid:") is_pidfd = static_cast<bool>(info >> said);
  if (!is_pidfd) throw Error(Status::corrupt, "the descriptor of the hello is no pidfd");
  if (pid > 0 && said > 0 && said != pid)
    throw Error(Status::corrupt, "the pidfd is of pid " + std::to_string(said) + ", the connection of pid " + std::to_string(pid));
}

}  // namespace gradshm::core
