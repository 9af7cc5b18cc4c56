#include "daemon/fork_guard.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <unordered_set>

#include "daemon/server.hpp"

namespace gradshm::core {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_set<Server*> servers;
  std::atomic<unsigned> epoch{0};
};

// Never destroyed: a child may be forked while static objects are torn down.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
  Registry& known = registry();
  known.epoch.fetch_add(1, std::memory_order_relaxed);  // order: relaxed, the child has one thread
  for (Server* server : known.servers) server->close_descriptors_in_child();
  known.servers.clear();
  known.mutex.unlock();
}

}  // namespace

void register_server(Server* server) {
  static const int installed = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(installed);
  const std::lock_guard lock(registry().mutex);
  registry().servers.insert(server);
}

void unregister_server(Server* server) noexcept {
  const std::lock_guard lock(registry().mutex);
  registry().servers.erase(server);
}

unsigned server_fork_epoch() noexcept { return registry().epoch.load(std::memory_order_relaxed); }  // order: relaxed, changes only in fork

}  // namespace gradshm::core
