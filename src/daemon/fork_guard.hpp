// Servers of this process in a forked child: their descriptors are closed there, and the child can ask whether it is one.
#pragma once

namespace gradshm::core {

class Server;

void register_server(Server* server);
void unregister_server(Server* server) noexcept;
// Grows by one in every forked child.
[[nodiscard]] unsigned server_fork_epoch() noexcept;

}  // namespace gradshm::core
