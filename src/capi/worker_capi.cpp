// Attach, membership, commit, poll and wait of the C ABI.
#include <cmath>
#include <string>

#include "base/text.hpp"
#include "capi/access.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/structs.hpp"
#include "memory/rundir.hpp"

using namespace gradshm::core;

namespace {

AttachOptions attach_options(const gradshm_attach_options_t* given) {
  AttachOptions options;
  if (given == nullptr) return options;
  const auto raw = read_struct(given, "gradshm_attach_options_t");
  constexpr std::uint32_t kKnown = GRADSHM_ATTACH_PARTIAL | GRADSHM_ATTACH_NOT_READY | GRADSHM_ATTACH_NO_WAIT | GRADSHM_ATTACH_WAIT_SERVER;
  if ((raw.flags & ~kKnown) != 0) throw Error(Status::invalid, "gradshm_attach_options_t.flags has bits that this version does not know");
  options.rank = raw.rank;
  options.partial = (raw.flags & GRADSHM_ATTACH_PARTIAL) != 0;
  options.ready = (raw.flags & GRADSHM_ATTACH_NOT_READY) == 0;
  options.wait_for_server = (raw.flags & GRADSHM_ATTACH_WAIT_SERVER) != 0;
  options.wait_for_admission = (raw.flags & GRADSHM_ATTACH_NO_WAIT) == 0;
  if (raw.timeout_ns != 0) options.timeout_ns = raw.timeout_ns;
  options.spin_ns = raw.spin_ns;
  if (raw.label != nullptr) options.label = raw.label;
  return options;
}

int simple_command(gradshm_handle_t* handle, CommandKind kind) {
  return guard([&] { checked_worker(handle).command(kind); });
}

// The steady state: no exception unless something is wrong, no allocation unless a sentence is needed.
std::string commit_sentence(const Handle& handle, Status status, int scope, std::size_t index, const CommitRequest& request) {
  const std::string who = "worker " + std::to_string(handle.rank()) + " of '" + handle.instance() + "'";
  const std::string what = scope == GRADSHM_ALL ? "everything" : (scope == GRADSHM_GROUP ? "group " : scope == GRADSHM_BUCKET ? "bucket " : "parameter ") + std::to_string(index);
  const std::string open = format_count(handle.view().closed_round() + 1);
  switch (status) {
    case Status::already_committed: return who + " has committed " + what + " to round " + open + " already: wait for it before the next commit";
    case Status::round_closed: return "round " + format_count(request.round) + " is closed; the open one is " + open;
    case Status::evicted: return who + " is no longer a member (it left or was evicted): attach again";
    case Status::not_member: return who + " takes part in no round yet, or is paused: call gradshm_wait_admitted, or gradshm_resume first";
    case Status::not_found: return who + " has registered no parameter in " + what + ", so it has nothing to commit there";
    case Status::invalid:
      if (request.round > handle.view().closed_round() + 1) return "round " + format_count(request.round) + " is not open yet; the open one is " + open;
      if (scope == GRADSHM_PARAMETER && !handle.committer()->names(index)) return "parameter " + std::to_string(index) + " is not one that this partial worker registered";
      if (request.weight > 0 && std::isfinite(request.weight)) return "weight " + std::to_string(request.weight) + " is refused: the first commit of this group in round " + open + " gave another one, and a group has one weight a round";
      return "weight " + std::to_string(request.weight) + " is refused: a weight is finite and > 0, or 0 for what the group's first commit of the round said";
    default: return status_text(static_cast<int>(status));
  }
}

CommitRequest commit_request(const gradshm_commit_options_t* given) {
  if (given == nullptr) return {};
  const auto raw = read_struct(given, "gradshm_commit_options_t");
  if (raw.presence < GRADSHM_PRESENT_ALL || raw.presence > GRADSHM_PRESENT_NONE)
    throw Error(Status::invalid, "presence " + std::to_string(raw.presence) + " is none of GRADSHM_PRESENT_ALL, MARKED, NONE");
  return {raw.round, raw.weight, static_cast<Presence>(raw.presence)};
}

void check_index(int scope, std::size_t index, const Layout& layout) {
  switch (scope) {
    case GRADSHM_ALL: return;
    case GRADSHM_GROUP: return check_below(index, layout.groups().size(), "group");
    case GRADSHM_BUCKET: return check_below(index, layout.buckets().size(), "bucket");
    case GRADSHM_PARAMETER: return check_below(index, layout.parameters().size(), "parameter");
    default: throw Error(Status::invalid, "scope " + std::to_string(scope) + " is none of GRADSHM_ALL, GROUP, BUCKET, PARAMETER");
  }
}

Status commit(Committer& committer, int scope, std::size_t index, const CommitRequest& request, std::size_t buckets, std::uint64_t& round) {
  switch (scope) {
    case GRADSHM_GROUP: return committer.commit_group(index, request, round);
    case GRADSHM_BUCKET: return committer.commit_buckets(index, index + 1, request, round);
    case GRADSHM_PARAMETER: return committer.commit_parameter(index, request, round);
    default: return committer.commit_buckets(0, buckets, request, round);
  }
}

std::string timeout_sentence(const Handle& handle, const std::string& which) {
  if (handle.is_worker() && !handle.daemon_lives() && !handle.was_stopped())
    return which + " did not close in time: the server '" + handle.instance() + "' (pid " + std::to_string(handle.daemon_pid()) +
           ") was killed; wait again: a successor is looked for up to " + format_seconds(handle.view().header().rejoin_timeout_ns) + " (its --rejoin-timeout)";
  const std::uint64_t open = handle.view().closed_round() + 1;
  const std::size_t missing = handle.is_worker() ? handle.committer()->missing_buckets(open) : 0;
  const std::string own = missing == 0 ? "" : "; this worker itself has not committed " + format_count(missing) + " of its buckets";
  return which + " did not close in time" + own + ": `gradshm-top " + handle.instance() + "` shows whom it waits for";
}

std::string wait_sentence(const Handle& handle, Status status, std::uint64_t round) {
  if (status != Status::timeout && status != Status::empty && status != Status::not_committed)
    if (std::string why = handle.refusal(); !why.empty()) return why;
  const std::string which = round == 0 ? "the round last committed to" : "round " + format_count(round);
  switch (status) {
    case Status::timeout: return timeout_sentence(handle, which);
    case Status::evicted: return "worker " + std::to_string(handle.rank()) + " of '" + handle.instance() + "' is no longer a member (it left or was evicted): attach again";
    case Status::daemon_lost: return "the server '" + handle.instance() + "' (pid " + std::to_string(handle.daemon_pid()) + ") is gone; " + which + " was not closed" +
             (handle.was_stopped() ? "" : ", and no successor came within the rejoin time-out");
    case Status::not_committed:
      if (!handle.is_worker()) return "an observer commits to no round, so round 0 means nothing to it: name the round";
      if (round == 0) return "this worker has committed to no round yet: commit first (or abstain)";
      return "this worker has committed nothing to " + which + ", so a wait would not end: commit first (or abstain)";
    case Status::empty: return which + " closed empty: everybody abstained";
    default: return status_text(static_cast<int>(status));
  }
}

}  // namespace

extern "C" {

int gradshm_attach(const char* instance, const gradshm_layout_t* layout, const gradshm_attach_options_t* options, gradshm_handle_t** ret_handle) {
  return guard([&] {
    require(layout, "layout"), require(ret_handle, "ret_handle");
    *ret_handle = new gradshm_handle{Handle::attach(resolve_instance_name(instance), layout->manifest, attach_options(options))};
  });
}

int gradshm_observe(const char* instance, int64_t timeout_ns, gradshm_handle_t** ret_handle) {
  return guard([&] {
    require(ret_handle, "ret_handle");
    *ret_handle = new gradshm_handle{Handle::observe(resolve_instance_name(instance), Deadline::after(timeout_ns == 0 ? AttachOptions().timeout_ns : timeout_ns))};
  });
}

void gradshm_detach(gradshm_handle_t* handle) {
  if (handle == nullptr) return;
  Handle* inner = handle->handle.get();
  if (inner->forked()) {
    // The parent's memory is not mapped here; unmapping its addresses could hit something of the child's own.
    static_cast<void>(handle->handle.release());
  } else if (inner->is_worker() && inner->daemon_lives()) {
    // Told, not only closed: when this returns, the rank is free. A server that is gone is not waited for.
    const std::string kept = last_error();
    static_cast<void>(guard([&] { inner->command(CommandKind::leave); }));
    static_cast<void>(fail(Status::ok, kept));
  }
  delete handle;
}

int gradshm_ready(gradshm_handle_t* handle) { return simple_command(handle, CommandKind::ready); }
int gradshm_pause(gradshm_handle_t* handle) { return simple_command(handle, CommandKind::pause); }
int gradshm_resume(gradshm_handle_t* handle) { return simple_command(handle, CommandKind::resume); }
int gradshm_leave(gradshm_handle_t* handle) { return simple_command(handle, CommandKind::leave); }

int gradshm_wait_admitted(gradshm_handle_t* handle, int64_t timeout_ns, uint64_t* ret_round) {
  return guard([&] {
    const std::uint64_t round = checked_worker(handle).wait_admitted(Deadline::after(timeout_ns));
    if (ret_round != nullptr) *ret_round = round;
  });
}

int gradshm_commit(gradshm_handle_t* handle, int scope, size_t index, const gradshm_commit_options_t* options, uint64_t* ret_round) {
  Status status = Status::ok;
  std::uint64_t round = 0;
  CommitRequest request;
  const int code = guard([&] {
    const Handle& worker = checked_worker(handle);
    const Layout& layout = worker.view().layout();
    check_index(scope, index, layout);
    request = commit_request(options);
    status = commit(*worker.committer(), scope, index, request, layout.buckets().size(), round);
  });
  if (code != GRADSHM_OK) return code;
  if (ret_round != nullptr && round != 0) *ret_round = round;
  return status == Status::ok ? GRADSHM_OK : fail(status, commit_sentence(*handle->handle, status, scope, index, request));
}

int gradshm_poll(gradshm_handle_t* handle, uint64_t round) {
  Status status = Status::ok;
  const int code = guard([&] { status = checked(handle).poll(round); });
  if (code != GRADSHM_OK || status == Status::ok) return code;
  return status == Status::not_closed ? GRADSHM_NOT_CLOSED : fail(status, wait_sentence(*handle->handle, status, round));
}

int gradshm_wait(gradshm_handle_t* handle, uint64_t round, int64_t timeout_ns) {
  Status status = Status::ok;
  const int code = guard([&] { status = checked(handle).wait(round, Deadline::after(timeout_ns)); });
  if (code != GRADSHM_OK || status == Status::ok) return code;
  return fail(status, wait_sentence(*handle->handle, status, round));
}

}  // extern "C"
