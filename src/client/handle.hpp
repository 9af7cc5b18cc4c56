// One attached worker or one observer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "client/connection.hpp"
#include "client/turn.hpp"
#include "client/view.hpp"
#include "protocol/committer.hpp"
#include "protocol/worker_words.hpp"

namespace gradshm::core {

inline constexpr int kRankAuto = GRADSHM_RANK_AUTO, kRankAny = GRADSHM_RANK_ANY;

struct AttachOptions {
  int rank = kRankAuto;
  bool partial = false, ready = true, wait_for_server = false, wait_for_admission = true;
  std::int64_t timeout_ns = 60'000'000'000;
  std::int64_t spin_ns = 0;  // 0 = by the number of CPUs, negative = never
  std::string label;         // empty = the program's name
};

class Handle {
 public:
  [[nodiscard]] static std::unique_ptr<Handle> attach(const std::string& instance, const Manifest& manifest, const AttachOptions& options);
  [[nodiscard]] static std::unique_ptr<Handle> observe(const std::string& instance, const Deadline& deadline);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // After fork the memory is not mapped in the child and the descriptors are closed: every call answers FORKED.
  [[nodiscard]] bool forked() const noexcept;
  void close_descriptors_in_child() noexcept;

  [[nodiscard]] const InstanceView& view() const noexcept { return *view_; }
  [[nodiscard]] bool is_worker() const noexcept { return worker_ != nullptr; }
  [[nodiscard]] int rank() const noexcept { return is_worker() ? static_cast<int>(worker_->rank) : -1; }
  [[nodiscard]] const std::string& instance() const noexcept { return instance_; }
  [[nodiscard]] int daemon_pid() const { return view_->header().daemon_pid; }
  [[nodiscard]] Committer* committer() const noexcept { return is_worker() ? &*worker_->committer : nullptr; }
  [[nodiscard]] std::byte* slot(std::size_t parameter) const noexcept;

  // ready, pause, resume, leave: throw Error.
  void command(CommandKind kind);
  // Throws Error(timeout | evicted | daemon_lost).
  std::uint64_t wait_admitted(const Deadline& deadline);

  // Where the server was killed, all of these wait for its successor (rejoin.cpp).
  // round 0: the one last committed to. wait: timeout instead of not_closed.
  Status poll(std::uint64_t round) noexcept;
  Status wait(std::uint64_t round, const Deadline& deadline) noexcept;
  Status read(std::size_t parameter, void* data, const Deadline& deadline, ResultInfo& ret_info) noexcept;
  // Why the successor of a killed server refused this worker; "" if it did not.
  [[nodiscard]] std::string refusal() const;
  [[nodiscard]] bool was_stopped() const noexcept;  // as planned: nobody comes after it
  [[nodiscard]] bool daemon_lives() const noexcept { return words_.daemon_lives(); }
  [[nodiscard]] std::uint64_t bytes_copied() const noexcept { return bytes_copied_.load(std::memory_order_relaxed); }  // order: relaxed, a statistic

 private:
  struct Worker {
    unsigned rank = 0;
    std::uint64_t generation = 0;
    MemFd slot_file, manifest;
    bool partial = false;
    std::string label;
    Mapping slot;
    UniqueFd doorbell;
    SlotShape shape;
    std::optional<Committer> committer;
  };
  Handle(std::string instance, Connection connection);
  void join(const Manifest& manifest, const AttachOptions& options, const Deadline& deadline);
  void take_slot(const Manifest& manifest, const AttachOptions& options, const Deadline& deadline);
  void send_command(CommandKind kind, std::uint32_t value, const Deadline& deadline);
  bool try_command(CommandKind kind, std::uint32_t value, const Deadline& deadline);
  void pause(const Deadline& deadline);
  Status rejoin(const Deadline& deadline) noexcept;
  std::optional<Status> try_rejoin(const Deadline& deadline);
  void ask_successor(const Deadline& deadline);
  void take_successor(const Packet& answer);
  Status refused(const Error& error);
  void show_newest_result(std::uint64_t round) noexcept;
  Status check_waitable(std::uint64_t& round) const noexcept;
  Status outcome(Status status, std::uint64_t round) noexcept;

  std::string instance_;
  Connection connection_;
  std::unique_ptr<InstanceView> view_;
  std::unique_ptr<Worker> worker_;
  WorkerWords words_;
  Turn command_;  // one request at a time on the socket; also held while a successor is looked for
  std::uint32_t commands_ = 0;
  std::atomic<std::uint64_t> bytes_copied_{0};
  std::atomic<std::int64_t> polled_ns_{0};
  std::atomic<bool> pause_in_doubt_{false};      // it was sent, and nothing came back
  std::optional<Connection> successor_;         // a hand-over was sent there, its answer has not come yet
  std::int64_t lost_ns_ = 0;                    // when the server was seen dead; 0 = it lives. Under command_
  std::atomic<std::uint64_t> result_until_{0};  // with result_pending_: the newest round that the old result holds
  std::atomic<bool> result_pending_{false};
  std::mutex result_mutex_;                     // held for the switch to another result only, never over a wait for the server
  mutable std::mutex refusal_mutex_;
  std::string refusal_;
  unsigned fork_epoch_;
};

}  // namespace gradshm::core
