// The server: one epoll loop over listener, connections, pidfds, doorbells and the stop event; between events it turns the rounds.
// The thread that calls run() does everything, sums included (with oneTBB threads beside it), so nothing here needs a lock.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>

#include "daemon/arena.hpp"
#include "daemon/options.hpp"
#include "daemon/rounds.hpp"
#include "daemon/session.hpp"
#include "layout/manifest.hpp"
#include "memory/beacon.hpp"
#include "memory/rundir.hpp"
#include "protocol/wire.hpp"

namespace gradshm::core {

class Server {
 public:
  // Takes the lock, reads the layout file, takes the memory, listens. Throws Error.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Until stop, or throws. Then the instance is gone: this process may live on, so its end tells the workers nothing.
  void run();
  void stop() noexcept;     // any thread, async-signal-safe. First call: lets the open round close (at most drain_ns); second: at once
  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  // A forked child would keep the name locked and the socket alive after our end. For the fork guard only.
  void close_descriptors_in_child() noexcept;

 private:
  enum class Source : std::uint8_t { listener, stop, socket, pidfd, doorbell };
  void serve();
  void tick();
  void end() noexcept;  // tells the workers, removes what it made
  void watch(int fd, Source source, std::uint64_t id, std::uint32_t events);
  void unwatch(const UniqueFd& fd) noexcept;
  void dispatch(int timeout_ms);
  void handle(Source source, std::uint64_t id);
  bool turn();
  bool look_for_work();
  void sleep();
  [[nodiscard]] bool drained() const;
  void begin_drain();
  void refresh(bool now);
  void list_as_taking_part(const Member& member);
  void list_members();
  [[nodiscard]] bool timers_run() const noexcept;
  void notice_gap();
  [[nodiscard]] bool round_has_begun();
  void enforce_deadline();

  void accept_all();
  void refuse_for_want_of_fds();
  void receive(Session& session);
  void answer(Session& session, const Packet& packet);
  void hello(Session& session, const Packet& packet);
  void join(Session& session, const Packet& packet);
  void hold_join(Session& session, const Packet& packet);
  void admit(Session& session, const Packet& packet, const Join& message);
  void observe(Session& session, const Packet& packet);
  void observe_slot(Session& session, const Packet& packet);
  [[nodiscard]] std::string ranks_text() const;
  void command(Session& session, const Packet& packet);
  void allocated(Session& session, bool ready);
  void end_session(Session& session, EventKind how, const std::string& why);
  void forget_member(const MemberPtr& member, EventKind how, const std::string& why);
  void evict(Session& session, const std::string& why, bool keep_connection);
  [[nodiscard]] Session* session_of(const MemberPtr& member) noexcept;
  void deliver(Session& session, const Packet& packet);
  template <class Function>
  void protect(Session& session, Function&& body);  // what it throws is the connection's fault alone

  // After a restart (recovery.cpp): the workers of a killed server, and from where its rounds go on.
  struct Recovery {
    std::int64_t until_ns;
    std::vector<std::pair<std::uint64_t, Packet>> joins;  // by session id: newcomers wait until the survivors are back
  };
  struct HandedOver;
  void begin_recovery(const BeaconData& dead);
  void begin_recovery(const HandedOver& first);
  void await_survivors(std::uint64_t floor, const std::string& of_whom);
  void tend_recovery();
  void end_recovery();
  [[nodiscard]] bool lives(const ListedWorker& worker) const;
  void rejoin(Session& session, const Packet& packet);
  void check_listed(const HandedOver& old, const Rejoin& message);
  void strike_off(std::size_t rank);
  void raise_floor(const HandedOver& old);
  void warn_of_ignored(const Layout& layout, const HandedOver& old) const;
  void take_layout(const Packet& packet, const HandedOver& old);
  void take_back(Session& session, const Packet& packet, const HandedOver& old, const Rejoin& message);

  void make_arena(Layout layout, unsigned expected_workers, std::uint64_t bucket_bytes = 0);  // 0: as the options say
  void drop_arena() noexcept;
  void admit_manifest(const UniqueFd& manifest, bool partial, Member& member);
  void check_budget();
  [[nodiscard]] unsigned choose_rank(int wanted);
  void drop_if_ended(unsigned rank);
  void register_member(Session& session, const MemberPtr& member);
  [[nodiscard]] bool send_join_ok(Session& session, const Member& member, const MemFd& slot);
  void note(LogLevel level, EventKind kind, const Member* member, const std::string& text);

  ServerOptions options_;
  std::uint64_t incarnation_, next_generation_;
  std::optional<InstanceDirectory> directory_;
  UniqueFd epoll_, listener_, stop_event_, spare_fd_;
  std::optional<Arena> arena_;
  std::optional<Publisher> publisher_;
  std::optional<Rounds> rounds_;
  std::optional<Beacon> beacon_;
  BeaconData beacon_data_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::array<MemberPtr, kMaxWorkers> members_;  // attached now, by rank
  std::optional<Recovery> recovery_;
  std::uint64_t floor_ = 0;  // newest round that any survivor of a killed server has seen closed: ours begin behind it, also for newcomers
  std::array<ListedWorker, kMaxWorkers> absent_;  // of a killed server, not back yet; paused ones may come as long as they live
  std::optional<Manifest> given_layout_;          // of --layout, while the survivors may still bring theirs
  std::uint64_t next_id_ = 1;
  bool paused_counts_ = false;  // the beacon lists a paused worker as taking part, until the round closes
  std::int64_t ticked_ns_ = 0, extension_ns_ = 0, first_commit_ns_ = 0;
  std::int64_t refreshed_ns_ = 0, drain_until_ns_ = 0, complained_ns_ = 0;
  bool draining_ = false, stopped_ = false, ended_ = false;
};

}  // namespace gradshm::core
