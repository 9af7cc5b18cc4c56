#include "client/handle.hpp"

#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/text.hpp"
#include "client/fork_guard.hpp"
#include "memory/rundir.hpp"
#include "memory/space.hpp"

namespace gradshm::core {
namespace {

constexpr std::int64_t kCommandTimeoutNs = 10'000'000'000;
constexpr std::int64_t kPollCheckNs = 50'000'000;
constexpr std::int64_t kDefaultSpinNs = 20'000;
constexpr long kServerPollNs = 10'000'000;

bool passes(Status status) { return status == Status::timeout || status == Status::daemon_lost; }

MemFd duplicate(UniqueFd& fd) { return MemFd(std::move(fd)); }

int rank_from_environment() {
  const char* text = std::getenv("GRADSHM_RANK");
  if (text == nullptr || *text == '\0') return -1;
  const char* const end = text + std::strlen(text);
  int rank = -1;
  if (const auto parsed = std::from_chars(text, end, rank); parsed.ec != std::errc() || parsed.ptr != end || rank < 0 || rank >= static_cast<int>(kMaxWorkers))
    throw Error(Status::invalid, "the environment says GRADSHM_RANK=" + escape(text) + "; a rank is 0 to " + std::to_string(kMaxWorkers - 1));
  return rank;
}

int wanted_rank(int rank) {
  if (rank == kRankAuto) return rank_from_environment();
  if (rank == kRankAny) return -1;
  if (rank < 0 || rank >= static_cast<int>(kMaxWorkers))
    throw Error(Status::invalid, "rank " + std::to_string(rank) + " is out of range: it takes 0 to " + std::to_string(kMaxWorkers - 1) +
                                     ", GRADSHM_RANK_AUTO or GRADSHM_RANK_ANY");
  return rank;
}

// Spinning pays only where every member can have a CPU of its own.
std::int64_t chosen_spin(std::int64_t asked, unsigned workers) {
  if (asked != 0) return std::clamp<std::int64_t>(asked, 0, std::int64_t{1} << 60);  // sums with the clock do not overflow
  cpu_set_t cpus;
  const unsigned available = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? static_cast<unsigned>(CPU_COUNT(&cpus)) : 1;
  return workers < available ? kDefaultSpinNs : 0;
}

Connection connect_patiently(const std::string& instance, const Deadline& deadline, bool wait_for_server) {
  while (true) {
    try {
      return connect_to(instance, deadline);
    } catch (const Error& error) {
      const bool may_pass = error.status() == Status::no_server || error.status() == Status::daemon_lost;
      if (!wait_for_server || !may_pass || deadline.passed()) throw;
    }
    const timespec pause{0, kServerPollNs};
    nanosleep(&pause, nullptr);
  }
}

// Runs `set_up`, and puts what was tried in front of what went wrong.
template <class Function>
auto with_context(const std::string& what, Function&& set_up) {
  try {
    return set_up();
  } catch (const Error& error) {
    throw Error(error.status(), what + ": " + error.what());
  }
}

}  // namespace

Handle::Handle(std::string instance, Connection connection)
    : instance_(std::move(instance)), connection_(std::move(connection)), fork_epoch_(core::fork_epoch()) {
  register_handle(this);
}

// A forked child has no mappings to unmap and no descriptors to close; detach leaks the handle there.
Handle::~Handle() { unregister_handle(this); }

bool Handle::forked() const noexcept { return fork_epoch_ != core::fork_epoch(); }

void Handle::close_descriptors_in_child() noexcept {
  connection_.socket.reset(), connection_.daemon_pidfd.reset();
  if (successor_) successor_->socket.reset(), successor_->daemon_pidfd.reset();
  if (worker_) worker_->doorbell.reset(), worker_->slot_file = {}, worker_->manifest = {};
  if (view_) view_->close_files();
}

std::unique_ptr<Handle> Handle::attach(const std::string& instance, const Manifest& manifest, const AttachOptions& options) {
  return with_context("cannot attach to '" + instance + "'", [&] {
    const Deadline deadline = Deadline::after(options.timeout_ns);
    while (true) {
      std::unique_ptr<Handle> handle(new Handle(instance, connect_patiently(instance, deadline, options.wait_for_server)));
      try {
        handle->join(manifest, options, deadline);
        handle->take_slot(manifest, options, deadline);
      } catch (const Error& error) {
        // Killed in the middle of it: who waits for a server waits for the next one.
        if (error.status() != Status::daemon_lost || !options.wait_for_server || deadline.passed()) throw;
        continue;
      }
      if (options.ready && options.wait_for_admission) handle->wait_admitted(deadline);
      return handle;
    }
  });
}

std::unique_ptr<Handle> Handle::observe(const std::string& instance, const Deadline& deadline) {
  return with_context("cannot observe '" + instance + "'", [&] {
    std::unique_ptr<Handle> handle(new Handle(instance, connect_to(instance, deadline)));
    std::vector<UniqueFd> fds;
    const auto answer = ask<ObserveOk>(handle->connection_, Observe{}, {}, deadline, 3, &fds);
    handle->view_ = std::make_unique<InstanceView>(duplicate(fds[0]), duplicate(fds[1]), duplicate(fds[2]), answer.incarnation);
    WorkerWords::Parts parts;
    parts.control = handle->view_->control().words;
    parts.daemon_pidfd = handle->connection_.daemon_pidfd.get();
    handle->words_ = WorkerWords(parts);
    return handle;
  });
}

void Handle::join(const Manifest& manifest, const AttachOptions& options, const Deadline& deadline) {
  if (manifest.size() == 0) {
    const std::string there = connection_.parameters == 0 ? "" : ", the instance has " + plural(connection_.parameters, "parameter");
    throw Error(Status::bad_layout, "the layout has 0 parameters" + there + ": add them before attaching");
  }
  Join request;
  request.rank = wanted_rank(options.rank);
  request.partial = options.partial ? 1u : 0u;
  const std::string label = options.label.empty() ? program_invocation_short_name : options.label;
  std::memcpy(request.label, label.data(), std::min(label.size(), sizeof request.label - 1));
  // As an encoded layout rather than as TSV, which cannot express every name; the server uses its parameters only.
  MemFd content = MemFd::sealed_copy("gradshm-manifest", encode_layout(Layout(manifest, {})));
  const std::array<int, 1> sent{content.fd()};
  std::vector<UniqueFd> fds;
  const auto answer = ask<JoinOk>(connection_, request, sent, deadline, 5, &fds);
  view_ = std::make_unique<InstanceView>(duplicate(fds[0]), duplicate(fds[1]), duplicate(fds[2]), connection_.incarnation);
  worker_ = std::make_unique<Worker>();
  worker_->rank = answer.rank, worker_->generation = answer.generation;
  worker_->manifest = std::move(content), worker_->partial = options.partial, worker_->label = label;
  worker_->slot_file = duplicate(fds[3]), worker_->doorbell = std::move(fds[4]);
  worker_->shape = slot_shape(view_->layout());
  if (answer.rank >= kMaxWorkers || answer.slot_bytes != worker_->shape.total || worker_->slot_file.size() != worker_->shape.total)
    throw Error(Status::corrupt, "the server's slot does not fit its layout");
}

// The worker takes the pages, so that they are charged to its cgroup and lie on its NUMA node.
void Handle::take_slot(const Manifest& manifest, const AttachOptions& options, const Deadline& deadline) {
  const Layout& layout = view_->layout();
  Worker& worker = *worker_;
  require_space(worker.shape.total, worker.shape.total, "a worker's slot");
  worker.slot_file.allocate();
  worker.slot = Mapping(worker.slot_file, Mapping::Access::read_write, worker.shape.total, "slot", true);
  WorkerWords::Parts parts;
  parts.control = view_->control().words, parts.entry = &view_->control().members[worker.rank];
  parts.slot = worker.slot.at<SlotWords>(worker.shape.words);
  parts.generation = worker.generation, parts.doorbell = worker.doorbell.get(), parts.daemon_pidfd = connection_.daemon_pidfd.get();
  parts.spin_ns = chosen_spin(options.spin_ns, std::max(view_->header().expect, 1u));
  words_ = WorkerWords(parts);
  std::vector<bool> named;
  if (options.partial) {
    named.assign(layout.parameters().size(), false);
    for (const Parameter& parameter : manifest.parameters()) named[layout.manifest().find(parameter.id)] = true;
  }
  worker.committer.emplace(layout, worker.shape, worker.slot.data(), std::move(named), words_);
  while (!try_command(CommandKind::allocated, options.ready ? 1u : 0u, deadline)) {
    const Status status = rejoin(deadline);
    // Killed before it had us on its list: then this attach has not happened.
    if (status == Status::evicted) throw Error(Status::daemon_lost, "the server was killed in the middle of this attach");
    if (status != Status::ok) throw Error(status, refusal().empty() ? "the server '" + instance_ + "' is gone" : refusal());
  }
}

std::byte* Handle::slot(std::size_t parameter) const noexcept {
  return worker_->slot.data() + worker_->shape.gradients + view_->layout().placements()[parameter].offset;
}

// Answers carry the command's number: one that comes late, after its command has timed out, is not taken for the next one's.
// False: the server died before it answered.
bool Handle::try_command(CommandKind kind, std::uint32_t value, const Deadline& deadline) {
  const std::unique_lock lock(command_, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), kCommandTimeoutNs)));
  if (!lock) throw Error(Status::timeout, "another thread of this handle waits for the server");
  if (words_.membership() == Status::evicted)
    throw Error(Status::evicted, "worker " + std::to_string(rank()) + " of '" + instance_ + "' is no longer a member (it left or was evicted): attach again");
  Command request;
  request.header.reserved = ++commands_;
  request.kind = static_cast<std::uint32_t>(kind), request.value = value;
  Packet packet;
  try {
    send_request(connection_, request, {});
    do packet = await_packet(connection_.socket.get(), deadline);
    while (sequence_of(packet) != commands_);
  } catch (const Error& error) {
    if (error.status() != Status::daemon_lost) throw;
    return false;
  }
  static_cast<void>(parse<Ack>(packet));
  return true;
}

// After a restart the successor knows the worker's state as the old server last published it, so that the command is just given again.
void Handle::send_command(CommandKind kind, std::uint32_t value, const Deadline& deadline) {
  while (!try_command(kind, value, deadline)) {
    const Status status = rejoin(deadline);
    if (status == Status::ok) continue;
    if (kind == CommandKind::leave && status == Status::evicted) return;  // it had left before the server was killed
    const std::string why = refusal();
    throw Error(status, why.empty() ? "the server '" + instance_ + "' is gone" : why);
  }
}

void Handle::command(CommandKind kind) {
  // The server's own time-out is added where it has to come back first.
  const std::int64_t patience_ns = words_.daemon_lives() ? 0 : view_->header().rejoin_timeout_ns;
  const Deadline deadline = Deadline::after(kCommandTimeoutNs + patience_ns);
  const bool begins = kind == CommandKind::ready || kind == CommandKind::resume;
  if (begins && pause_in_doubt_.load(std::memory_order_relaxed)) pause(deadline);  // order: relaxed, commands are no race partners
  if (kind == CommandKind::pause) pause(deadline);
  else send_command(kind, 0, deadline);
}

// A pause without an answer may still happen, and takes commits back only then: it is asked for once more before the rounds go on for
// this worker, which changes nothing where it has happened.
void Handle::pause(const Deadline& deadline) {
  try {
    send_command(CommandKind::pause, 0, deadline);
  } catch (const Error& error) {
    if (passes(error.status())) pause_in_doubt_.store(true, std::memory_order_relaxed);  // order: relaxed, as in command
    throw;
  }
  worker_->committer->withdraw();
  pause_in_doubt_.store(false, std::memory_order_relaxed);  // order: relaxed, as in command
}

std::uint64_t Handle::wait_admitted(const Deadline& deadline) {
  const std::string what = "worker " + std::to_string(rank()) + " is not admitted to a round yet: ";
  Status status = Status::ok;
  do status = words_.wait_admitted(deadline);
  while (status == Status::daemon_lost && (status = rejoin(deadline)) == Status::ok);
  switch (status) {
    case Status::ok: return words_.first_round();
    case Status::timeout:
      if (view_->closed_round() == 0 && view_->control().words->members == 0)
        throw Error(status, what + "round 1 opens with " + plural(view_->header().expect, "ready worker") + " (gradshmd --expect)");
      throw Error(status, what + "round " + format_count(view_->closed_round() + 1) + " is still open; `gradshm-top " + instance_ +
                              "` shows whom it waits for (with several workers in one thread, attach with NO_WAIT)");
    case Status::evicted: throw Error(status, "worker " + std::to_string(rank()) + " was evicted before it was admitted");
    default: throw Error(status, what + "the server is gone");
  }
}

Status Handle::outcome(Status status, std::uint64_t round) noexcept {
  if (status != Status::ok) return status;
  show_newest_result(round);
  return view_->round_status(round);
}

// A member that has committed nothing to a round would wait for itself.
Status Handle::check_waitable(std::uint64_t& round) const noexcept {
  const std::uint64_t last = is_worker() ? worker_->committer->committed_round() : 0;
  if (round == 0) round = last;
  if (round == 0) return Status::not_committed;
  const bool would_wait_for_itself = is_worker() && round > last && round > words_.closed_round() && words_.membership() == Status::ok;
  return would_wait_for_itself ? Status::not_committed : Status::ok;
}

Status Handle::poll(std::uint64_t round) noexcept {
  if (const Status status = check_waitable(round); status != Status::ok) return status;
  const Status status = words_.look(round);
  if (status != Status::not_closed) return outcome(status, round);
  // A loop of polls must notice the server's death too, but not pay for a system call every time.
  const std::int64_t now = now_ns();
  if (now - polled_ns_.load(std::memory_order_relaxed) < kPollCheckNs) return status;  // order: relaxed, only spaces out the check
  polled_ns_.store(now, std::memory_order_relaxed);                                    // order: relaxed, as above
  if (words_.daemon_lives()) return status;
  const Status last = words_.look(round);
  if (last != Status::not_closed) return outcome(last, round);
  const Status found = is_worker() ? rejoin(Deadline::after(0)) : Status::daemon_lost;
  return found == Status::ok || found == Status::timeout ? Status::not_closed : found;
}

Status Handle::wait(std::uint64_t round, const Deadline& deadline) noexcept {
  if (const Status status = check_waitable(round); status != Status::ok) return status;
  Status status = Status::ok;
  do status = words_.wait(round, deadline);
  while (status == Status::daemon_lost && is_worker() && (status = rejoin(deadline)) == Status::ok);
  return outcome(status, round);
}

Status Handle::read(std::size_t parameter, void* data, const Deadline& deadline, ResultInfo& ret_info) noexcept {
  Status status = Status::not_closed;
  // Who takes part shows himself the newest result by waiting; nobody else would do it for him.
  if (is_worker() && words_.membership() != Status::ok) show_newest_result(words_.closed_round());
  while (true) {
    const std::int64_t slice_ns = std::min(deadline.remaining_ns(), kPollCheckNs);
    status = view_->read(parameter, data, Deadline::after(slice_ns), ret_info);
    if ((status != Status::not_closed && status != Status::timeout) || deadline.passed()) break;
    if (!words_.daemon_lives()) return Status::daemon_lost;
  }
  const std::uint64_t bytes = view_->layout().placements()[parameter].bytes;
  if (status == Status::ok) bytes_copied_.fetch_add(bytes, std::memory_order_relaxed);  // order: relaxed, a statistic
  return status;
}

}  // namespace gradshm::core
