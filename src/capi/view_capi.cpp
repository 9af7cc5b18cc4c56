// Parameters, pointers, rounds and results of the C ABI.
#include <algorithm>
#include <string>

#include "base/text.hpp"
#include "capi/access.hpp"
#include "capi/guard.hpp"
#include "protocol/atomics.hpp"

using namespace gradshm::core;

namespace {

const Parameter& checked_parameter(const Handle& handle, std::size_t index) {
  const auto& parameters = handle.view().layout().parameters();
  check_below(index, parameters.size(), "parameter");
  return parameters[index];
}

gradshm_parameter_t describe_parameter(const Handle& handle, std::size_t index) {
  const Parameter& parameter = checked_parameter(handle, index);
  const Placement& place = handle.view().layout().placements()[index];
  gradshm_parameter_t out{};
  out.id = parameter.id, out.name = parameter.name.c_str();
  out.dtype = static_cast<std::int32_t>(parameter.dtype), out.order = static_cast<std::int32_t>(parameter.order);
  out.ndim = parameter.shape.size(), out.numel = parameter.numel, out.bytes = place.bytes;
  std::copy(parameter.shape.begin(), parameter.shape.end(), out.shape);
  out.offset = place.offset, out.bucket = place.bucket, out.group = place.group;
  out.alias_count = static_cast<std::uint32_t>(parameter.aliases.size());
  out.mine = handle.is_worker() && handle.committer()->names(index) ? 1u : 0u;
  return out;
}

// of what there is none, said with what to do
[[noreturn]] void not_there(const Handle& handle, const char* what, const std::string& which) {
  throw Error(Status::not_found, "instance '" + handle.instance() + "' has no " + what + " " + which + ": `gradshm layout show " + handle.instance() + "` lists them");
}

[[noreturn]] void no_record(const Handle& handle, Status status, std::uint64_t round) {
  const std::uint64_t closed = handle.view().closed_round();
  if (round == 0) throw Error(Status::invalid, "rounds are counted from 1; the newest closed one is " + format_count(closed));
  throw Error(status, status == Status::not_closed
                          ? "round " + format_count(round) + " is not closed; the newest closed one is " + format_count(closed)
                          : "the record of round " + format_count(round) + " is no longer kept: the newest " + std::to_string(kRecords) + " up to " + format_count(closed) + " are");
}

RoundRecord checked_record(const Handle& handle, std::uint64_t round) {
  RoundRecord record;
  if (const Status status = handle.view().record(round, record); status != Status::ok) no_record(handle, status, round);
  return record;
}

gradshm_round_t describe_round(const RoundRecord& record) {
  gradshm_round_t out{};
  out.round = record.round, out.status = record.status;
  out.member_count = record.member_count, out.contributor_count = record.contributor_count, out.last_rank = record.last_rank;
  std::copy_n(record.members, kRankWords, out.members);
  std::copy_n(record.contributors, kRankWords, out.contributors);
  std::copy_n(record.nonfinite_ranks, kRankWords, out.nonfinite_ranks);
  out.sum_of_squares = record.sum_of_squares, out.nonfinite_result = record.nonfinite_result;
  out.first_commit_ns = record.first_commit_ns, out.last_commit_ns = record.last_commit_ns;
  out.closed_ns = record.closed_ns, out.reduce_ns = record.reduce_ns;
  return out;
}

gradshm_result_info_t describe_result(const ResultInfo& info) {
  gradshm_result_info_t out{};
  out.round = info.round, out.present = info.count != 0 ? 1u : 0u, out.count = static_cast<std::uint32_t>(info.count), out.weight_sum = info.weight_sum;
  return out;
}

std::string result_sentence(const Handle& handle, std::size_t parameter, Status status) {
  const std::string name = "'" + escape(handle.view().layout().parameters()[parameter].name) + "'";
  if (status == Status::daemon_lost) return "the server '" + handle.instance() + "' is gone, and parameter " + name + " has no result of a closed round";
  if (status == Status::timeout) return "parameter " + name + " changed under every try to copy it: rounds close too fast for this time-out";
  return "parameter " + name + " has no result of a closed round right now (none has closed, or the next is being summed)";
}

}  // namespace

extern "C" {

int gradshm_info(const gradshm_handle_t* handle, gradshm_info_t* info) {
  return guard([&] {
    const Handle& inner = checked(handle);
    const Layout& layout = inner.view().layout();
    gradshm_info_t out{};
    out.incarnation = inner.view().header().object.incarnation, out.fingerprint = layout.layout_fingerprint();
    out.closed_round = inner.view().closed_round();
    out.committed_round = inner.is_worker() ? inner.committer()->committed_round() : 0;
    out.parameters = layout.parameters().size(), out.buckets = layout.buckets().size(), out.groups = layout.groups().size();
    out.slot_bytes = layout.gradient_bytes(), out.rank = inner.rank(), out.daemon_pid = inner.daemon_pid();
    out.op = static_cast<std::int32_t>(inner.view().header().op);
    out.members = static_cast<std::int32_t>(load_relaxed(inner.view().control().words->members));  // order: relaxed, a number to show
    out.bytes_copied = inner.bytes_copied();
    write_struct(info, out, "gradshm_info_t");
  });
}

int gradshm_parameter(const gradshm_handle_t* handle, size_t index, gradshm_parameter_t* parameter) {
  return guard([&] { write_struct(parameter, describe_parameter(checked(handle), index), "gradshm_parameter_t"); });
}

int gradshm_alias(const gradshm_handle_t* handle, size_t index, size_t alias, const char** ret_name) {
  return guard([&] {
    const Parameter& parameter = checked_parameter(checked(handle), index);
    check_below(alias, parameter.aliases.size(), "alias"), require(ret_name, "ret_name");
    *ret_name = parameter.aliases[alias].c_str();
  });
}

int gradshm_find(const gradshm_handle_t* handle, const char* name, size_t* ret_index) {
  return guard([&] {
    const Handle& inner = checked(handle);
    require(name, "name"), require(ret_index, "ret_index");
    const auto index = inner.view().find(name);
    if (!index) not_there(inner, "parameter", "'" + escape(name) + "'");
    *ret_index = *index;
  });
}

int gradshm_find_id(const gradshm_handle_t* handle, uint64_t id, size_t* ret_index) {
  return guard([&] {
    const Handle& inner = checked(handle);
    require(ret_index, "ret_index");
    const std::size_t index = inner.view().layout().manifest().find(id);
    if (index >= inner.view().layout().parameters().size()) not_there(inner, "parameter with id", format_hex(id));
    *ret_index = index;
  });
}

int gradshm_bucket(const gradshm_handle_t* handle, size_t index, gradshm_bucket_t* bucket) {
  return guard([&] {
    const auto& buckets = checked(handle).view().layout().buckets();
    check_below(index, buckets.size(), "bucket");
    gradshm_bucket_t out{};
    out.first_parameter = buckets[index].first, out.parameters = buckets[index].parameters, out.group = buckets[index].group;
    out.dtype = static_cast<std::int32_t>(buckets[index].dtype), out.offset = buckets[index].offset, out.bytes = buckets[index].bytes;
    write_struct(bucket, out, "gradshm_bucket_t");
  });
}

int gradshm_bucket_parameter(const gradshm_handle_t* handle, size_t bucket, size_t position, size_t* ret_parameter) {
  return guard([&] {
    const Layout& layout = checked(handle).view().layout();
    check_below(bucket, layout.buckets().size(), "bucket");
    check_below(position, layout.buckets()[bucket].parameters, "position in the bucket");
    require(ret_parameter, "ret_parameter");
    *ret_parameter = layout.order()[layout.buckets()[bucket].first + position];
  });
}

int gradshm_find_group(const gradshm_handle_t* handle, const char* name, size_t* ret_index) {
  return guard([&] {
    const Handle& inner = checked(handle);
    require(name, "name"), require(ret_index, "ret_index");
    const auto index = inner.view().find_group(name);
    if (!index) not_there(inner, "group", "'" + escape(name) + "'");
    *ret_index = *index;
  });
}

int gradshm_group_name(const gradshm_handle_t* handle, size_t index, const char** ret_name) {
  return guard([&] {
    const auto& groups = checked(handle).view().layout().groups();
    check_below(index, groups.size(), "group"), require(ret_name, "ret_name");
    *ret_name = groups[index].c_str();
  });
}

int gradshm_slot(const gradshm_handle_t* handle, size_t parameter, void** ret_data) {
  return guard([&] {
    const Handle& worker = checked_worker(handle);
    const Parameter& described = checked_parameter(worker, parameter);
    require(ret_data, "ret_data");
    if (!worker.committer()->names(parameter))
      throw Error(Status::invalid, "parameter '" + escape(described.name) + "' is not one that this partial worker registered");
    *ret_data = worker.slot(parameter);
  });
}

int gradshm_result(const gradshm_handle_t* handle, size_t parameter, const void** ret_data) {
  return guard([&] {
    const Handle& inner = checked(handle);
    static_cast<void>(checked_parameter(inner, parameter));
    require(ret_data, "ret_data");
    *ret_data = inner.view().result(parameter);
  });
}

int gradshm_round(const gradshm_handle_t* handle, uint64_t round, gradshm_round_t* info) {
  return guard([&] { write_struct(info, describe_round(checked_record(checked(handle), round)), "gradshm_round_t"); });
}

int gradshm_round_group_weight(const gradshm_handle_t* handle, uint64_t round, size_t group, double* ret_weight) {
  return guard([&] {
    const Handle& inner = checked(handle);
    check_below(group, inner.view().layout().groups().size(), "group"), require(ret_weight, "ret_weight");
    if (const Status status = inner.view().group_weight(round, group, *ret_weight); status != Status::ok) no_record(inner, status, round);
  });
}

int gradshm_round_nonfinite(const gradshm_handle_t* handle, uint64_t round, int rank, uint64_t* ret_elements) {
  return guard([&] {
    const Handle& inner = checked(handle);
    if (rank < 0 || rank >= static_cast<int>(kMaxWorkers)) throw Error(Status::invalid, "rank " + std::to_string(rank) + " is out of range: it takes 0 to 255");
    require(ret_elements, "ret_elements");
    *ret_elements = checked_record(inner, round).nonfinite_by_rank[rank];
  });
}

int gradshm_result_info(const gradshm_handle_t* handle, size_t parameter, gradshm_result_info_t* info) {
  return guard([&] {
    const Handle& inner = checked(handle);
    static_cast<void>(checked_parameter(inner, parameter));
    ResultInfo found;
    if (const Status status = inner.view().result_info(parameter, found); status != Status::ok)
      throw Error(status, result_sentence(inner, parameter, status));
    write_struct(info, describe_result(found), "gradshm_result_info_t");
  });
}

int gradshm_read(gradshm_handle_t* handle, size_t parameter, void* data, size_t bytes, int64_t timeout_ns, gradshm_result_info_t* info) {
  return guard([&] {
    Handle& inner = checked(handle);
    const Parameter& described = checked_parameter(inner, parameter);
    const std::uint64_t wanted = inner.view().layout().placements()[parameter].bytes;
    if (bytes != wanted)
      throw Error(Status::invalid, "parameter '" + escape(described.name) + "' has " + format_count(wanted) + " bytes, the buffer " + format_count(bytes));
    if (bytes > 0) require(data, "data");
    ResultInfo found;
    if (const Status status = inner.read(parameter, data, Deadline::after(timeout_ns), found); status != Status::ok)
      throw Error(status, result_sentence(inner, parameter, status));
    if (info != nullptr) write_struct(info, describe_result(found), "gradshm_result_info_t");
  });
}

}  // extern "C"
