// Bad arguments of the C ABI: refused with a code and a sentence, and nothing is written.
#include <cstring>
#include <limits>

#include "server/workers.hpp"

namespace gradshm::test {
namespace {

constexpr std::size_t kFar = std::numeric_limits<std::size_t>::max();

template <class Struct>
Struct with_size(std::size_t size) {
  Struct value{};
  value.size = size;
  return value;
}

// A struct of a later version: ours and a tail that we do not know.
template <class Struct>
struct Later {
  Struct known{};
  unsigned char tail[64];
  Later() {
    known.size = sizeof(Later);
    std::memset(tail, 0xab, sizeof tail);
  }
  [[nodiscard]] bool tail_untouched() const {
    return std::all_of(std::begin(tail), std::end(tail), [](unsigned char byte) { return byte == 0xab; });
  }
};

bool refuses_null(int code) { return code == GRADSHM_INVALID && answer(code).says("is NULL"); }

}  // namespace

TEST_CASE("NULL handles are refused by every function and detach takes them") {
  size_t index = 0;
  const char* name = nullptr;
  void* slot = nullptr;
  const void* result = nullptr;
  double weight = 0;
  std::uint64_t elements = 0;
  CHECK(refuses_null(gradshm_ready(nullptr)));
  CHECK(refuses_null(gradshm_pause(nullptr)));
  CHECK(refuses_null(gradshm_resume(nullptr)));
  CHECK(refuses_null(gradshm_leave(nullptr)));
  CHECK(refuses_null(gradshm_wait_admitted(nullptr, 0, nullptr)));
  CHECK(refuses_null(gradshm_info(nullptr, nullptr)));
  CHECK(refuses_null(gradshm_parameter(nullptr, 0, nullptr)));
  CHECK(refuses_null(gradshm_alias(nullptr, 0, 0, &name)));
  CHECK(refuses_null(gradshm_find(nullptr, "a", &index)));
  CHECK(refuses_null(gradshm_find_id(nullptr, 1, &index)));
  CHECK(refuses_null(gradshm_bucket(nullptr, 0, nullptr)));
  CHECK(refuses_null(gradshm_bucket_parameter(nullptr, 0, 0, &index)));
  CHECK(refuses_null(gradshm_find_group(nullptr, "", &index)));
  CHECK(refuses_null(gradshm_group_name(nullptr, 0, &name)));
  CHECK(refuses_null(gradshm_slot(nullptr, 0, &slot)));
  CHECK(refuses_null(gradshm_result(nullptr, 0, &result)));
  CHECK(refuses_null(gradshm_commit(nullptr, GRADSHM_ALL, 0, nullptr, nullptr)));
  CHECK(refuses_null(gradshm_poll(nullptr, 0)));
  CHECK(refuses_null(gradshm_wait(nullptr, 0, 0)));
  CHECK(refuses_null(gradshm_round(nullptr, 1, nullptr)));
  CHECK(refuses_null(gradshm_round_group_weight(nullptr, 1, 0, &weight)));
  CHECK(refuses_null(gradshm_round_nonfinite(nullptr, 1, 0, &elements)));
  CHECK(refuses_null(gradshm_result_info(nullptr, 0, nullptr)));
  CHECK(refuses_null(gradshm_read(nullptr, 0, &weight, 8, 0, nullptr)));
  gradshm_detach(nullptr);
}

TEST_CASE("NULL where a good handle is to write something is refused") {
  Team team(floats(1), 1);
  commit_and_wait(team[0]);
  gradshm_handle_t* handle = team[0].get();
  size_t index = 0;
  CHECK(refuses_null(gradshm_info(handle, nullptr)));
  CHECK(refuses_null(gradshm_parameter(handle, 0, nullptr)));
  CHECK(refuses_null(gradshm_find(handle, nullptr, &index)));
  CHECK(refuses_null(gradshm_find(handle, "p0", nullptr)));
  CHECK(refuses_null(gradshm_find_id(handle, gradshm_parameter_id("p0"), nullptr)));
  CHECK(refuses_null(gradshm_bucket(handle, 0, nullptr)));
  CHECK(refuses_null(gradshm_bucket_parameter(handle, 0, 0, nullptr)));
  CHECK(refuses_null(gradshm_find_group(handle, nullptr, &index)));
  CHECK(refuses_null(gradshm_find_group(handle, "", nullptr)));
  CHECK(refuses_null(gradshm_group_name(handle, 0, nullptr)));
  CHECK(refuses_null(gradshm_slot(handle, 0, nullptr)));
  CHECK(refuses_null(gradshm_result(handle, 0, nullptr)));
  CHECK(refuses_null(gradshm_round(handle, 1, nullptr)));
  CHECK(refuses_null(gradshm_round_group_weight(handle, 1, 0, nullptr)));
  CHECK(refuses_null(gradshm_round_nonfinite(handle, 1, 0, nullptr)));
  CHECK(refuses_null(gradshm_result_info(handle, 0, nullptr)));
}

TEST_CASE("NULL at attach, observe and create is refused") {
  const Layout layout = floats(1);
  gradshm_handle_t* handle = nullptr;
  CHECK(refuses_null(gradshm_attach("x", nullptr, nullptr, &handle)));
  CHECK(refuses_null(gradshm_attach("x", layout.get(), nullptr, nullptr)));
  CHECK(refuses_null(gradshm_observe("x", 0, nullptr)));
  CHECK(handle == nullptr);
  CHECK(gradshm_server_create(nullptr, nullptr) == GRADSHM_INVALID);
}

TEST_CASE("a struct without its size is refused by name") {
  Team team(floats(1), 1);
  commit_and_wait(team[0]);
  gradshm_handle_t* handle = team[0].get();
  const auto unset = [](int code, const char* name) { return code == GRADSHM_INVALID && answer(code).says(std::string(name) + ".size is not set"); };
  for (const std::size_t size : {0, 7}) {
    auto info = with_size<gradshm_info_t>(size);
    auto parameter = with_size<gradshm_parameter_t>(size);
    auto bucket = with_size<gradshm_bucket_t>(size);
    auto round = with_size<gradshm_round_t>(size);
    auto result = with_size<gradshm_result_info_t>(size);
    const auto commit_options = with_size<gradshm_commit_options_t>(size);
    const auto attach_options = with_size<gradshm_attach_options_t>(size);
    gradshm_handle_t* other = nullptr;
    CHECK(unset(gradshm_info(handle, &info), "gradshm_info_t"));
    CHECK(unset(gradshm_parameter(handle, 0, &parameter), "gradshm_parameter_t"));
    CHECK(unset(gradshm_bucket(handle, 0, &bucket), "gradshm_bucket_t"));
    CHECK(unset(gradshm_round(handle, 1, &round), "gradshm_round_t"));
    CHECK(unset(gradshm_result_info(handle, 0, &result), "gradshm_result_info_t"));
    CHECK(unset(gradshm_commit(handle, GRADSHM_ALL, 0, &commit_options, nullptr), "gradshm_commit_options_t"));
    CHECK(unset(gradshm_attach(team.server.name().c_str(), floats(1).get(), &attach_options, &other), "gradshm_attach_options_t"));
  }
  CHECK(team[0].info().committed_round == 1);
}

TEST_CASE("the shorter struct of an older version gets its prefix and nothing behind it") {
  Team team(floats(1), 1);
  gradshm_info_t info;
  std::memset(&info, 0xab, sizeof info);
  info.size = offsetof(gradshm_info_t, fingerprint);
  CHECK(gradshm_info(team[0].get(), &info) == GRADSHM_OK);
  CHECK(info.size == offsetof(gradshm_info_t, fingerprint));
  CHECK(info.incarnation == team[0].info().incarnation);
  CHECK(info.fingerprint == 0xabababababababab);
  auto options = with_size<gradshm_commit_options_t>(offsetof(gradshm_commit_options_t, weight));
  options.weight = -1, options.presence = 99;  // behind its end: not looked at
  CHECK(gradshm_commit(team[0].get(), GRADSHM_ALL, 0, &options, nullptr) == GRADSHM_OK);
  CHECK(wait_for(team[0]) == Outcome::ok);
}

TEST_CASE("the longer struct of a later version keeps its tail") {
  Team team(floats(1), 1);
  commit_and_wait(team[0]);
  Later<gradshm_info_t> info;
  Later<gradshm_round_t> round;
  Later<gradshm_result_info_t> result;
  Later<gradshm_commit_options_t> options;
  CHECK(gradshm_info(team[0].get(), &info.known) == GRADSHM_OK);
  CHECK(gradshm_round(team[0].get(), 1, &round.known) == GRADSHM_OK);
  CHECK(gradshm_result_info(team[0].get(), 0, &result.known) == GRADSHM_OK);
  CHECK(gradshm_commit(team[0].get(), GRADSHM_ALL, 0, &options.known, nullptr) == GRADSHM_OK);
  CHECK(info.known.closed_round == 1);
  CHECK(info.known.size == sizeof info);
  CHECK(round.known.contributor_count == 1);
  CHECK(result.known.count == 1);
  CHECK(info.tail_untouched());
  CHECK(round.tail_untouched());
  CHECK(result.tail_untouched());
}

TEST_CASE("indexes out of range are refused with the number there is") {
  Team team(floats(2), 1);
  commit_and_wait(team[0]);
  gradshm_handle_t* handle = team[0].get();
  void* slot = nullptr;
  const void* result = nullptr;
  const char* name = nullptr;
  size_t position = 0;
  double weight = 0;
  std::uint64_t elements = 0;
  auto parameter = detail::sized<gradshm_parameter_t>();
  auto info = detail::sized<gradshm_result_info_t>();
  auto bucket = detail::sized<gradshm_bucket_t>();
  const auto out_of = [](int code, const char* count) { return code == GRADSHM_INVALID && answer(code).says(std::string("out of range: the instance has ") + count); };
  for (const std::size_t index : {std::size_t{2}, kFar}) {
    CHECK(out_of(gradshm_parameter(handle, index, &parameter), "2"));
    CHECK(out_of(gradshm_slot(handle, index, &slot), "2"));
    CHECK(out_of(gradshm_result(handle, index, &result), "2"));
    CHECK(out_of(gradshm_result_info(handle, index, &info), "2"));
    CHECK(out_of(gradshm_read(handle, index, &weight, 8, 0, nullptr), "2"));
    CHECK(out_of(gradshm_alias(handle, index, 0, &name), "2"));
    CHECK(out_of(gradshm_commit(handle, GRADSHM_PARAMETER, index, nullptr, nullptr), "2"));
  }
  for (const std::size_t index : {std::size_t{1}, kFar}) {
    CHECK(out_of(gradshm_bucket(handle, index, &bucket), "1"));
    CHECK(out_of(gradshm_bucket_parameter(handle, index, 0, &position), "1"));
    CHECK(out_of(gradshm_group_name(handle, index, &name), "1"));
    CHECK(out_of(gradshm_commit(handle, GRADSHM_BUCKET, index, nullptr, nullptr), "1"));
    CHECK(out_of(gradshm_commit(handle, GRADSHM_GROUP, index, nullptr, nullptr), "1"));
    CHECK(out_of(gradshm_round_group_weight(handle, 1, index, &weight), "1"));
  }
  CHECK(gradshm_bucket_parameter(handle, 0, 2, &position) == GRADSHM_INVALID);
  CHECK(gradshm_alias(handle, 0, 0, &name) == GRADSHM_INVALID);
  for (const int rank : {-1, 256, 1 << 30}) CHECK(gradshm_round_nonfinite(handle, 1, rank, &elements) == GRADSHM_INVALID);
  CHECK(team[0].info().committed_round == 1);
}

TEST_CASE("unknown names, ids and groups are not found and nothing is written") {
  Team team(floats(1), 1);
  size_t index = 77;
  const auto missing = [](int code) { return code == GRADSHM_NOT_FOUND && answer(code).says("gradshm layout show"); };
  CHECK(missing(gradshm_find(team[0].get(), "p9", &index)));
  CHECK(missing(gradshm_find(team[0].get(), "", &index)));
  CHECK(missing(gradshm_find(team[0].get(), "evil\n\x1b[2J", &index)));
  CHECK(std::string(gradshm_last_error()).find('\x1b') == std::string::npos);
  CHECK(missing(gradshm_find_id(team[0].get(), 0, &index)));
  CHECK(missing(gradshm_find_group(team[0].get(), "no such group", &index)));
  CHECK(index == 77);
  CHECK(gradshm_find_id(team[0].get(), gradshm_parameter_id("p0"), &index) == GRADSHM_OK);
  CHECK(index == 0);
}

TEST_CASE("unknown scopes, presences and flags are refused with their number") {
  Team team(floats(1), 1);
  for (const int scope : {-1, 4, 1000}) {
    const Failure refused = answer(gradshm_commit(team[0].get(), scope, 0, nullptr, nullptr));
    CHECK(refused.code == GRADSHM_INVALID);
    CHECK(refused.says("scope " + std::to_string(scope)));
  }
  for (const std::int32_t presence : {-1, 3, 77}) {
    auto options = detail::sized<gradshm_commit_options_t>();
    options.presence = presence;
    const Failure refused = answer(gradshm_commit(team[0].get(), GRADSHM_ALL, 0, &options, nullptr));
    CHECK(refused.code == GRADSHM_INVALID);
    CHECK(refused.says("presence " + std::to_string(presence)));
  }
  auto options = detail::sized<gradshm_attach_options_t>();
  options.flags = 1u << 16;
  gradshm_handle_t* handle = nullptr;
  CHECK(answer(gradshm_attach(team.server.name().c_str(), floats(1).get(), &options, &handle)).says("flags"));
  CHECK(handle == nullptr);
  CHECK(team[0].info().committed_round == 0);
}

TEST_CASE("the sentence of a failure belongs to its thread") {
  CHECK(gradshm_pause(nullptr) == GRADSHM_INVALID);
  const std::string ours = gradshm_last_error();
  std::thread([] { CHECK(std::string(gradshm_last_error()).empty()); }).join();
  CHECK(gradshm_last_error() == ours);
}

TEST_CASE("codes, versions and dtypes have their texts") {
  for (int code = GRADSHM_INTERNAL; code <= GRADSHM_OK; ++code) CHECK(std::strlen(gradshm_strerror(code)) > 0);
  CHECK(std::string(gradshm_strerror(-1000)) == gradshm_strerror(1));
  CHECK(std::string(gradshm_version()) == GRADSHM_VERSION_TEXT);
  CHECK(std::string(gradshm_server_version()) == gradshm_version());
  CHECK(std::string(gradshm_dtype_name(GRADSHM_BF16)) == "bf16");
  CHECK(std::string(gradshm_dtype_name(99)) == "?");
  CHECK(gradshm_dtype_size(GRADSHM_F64) == 8);
  CHECK(gradshm_dtype_size(0) == 0);
  CHECK(gradshm_parameter_id(nullptr) == 0);
}

}  // namespace gradshm::test
