// What may be registered, and what happens when two workers register different things.
#include "server/workers.hpp"

namespace gradshm::test {
namespace {

int add(const Layout& layout, const char* name, int dtype = GRADSHM_F32, std::vector<std::int64_t> shape = {4}) {
  return gradshm_layout_add(const_cast<gradshm_layout_t*>(layout.get()), name, dtype, shape.data(), shape.size());
}

Failure mismatch(const std::string& name, const Layout& layout) {
  const Failure refused = attach_failure(name, layout);
  CHECK(refused.code == GRADSHM_LAYOUT_MISMATCH);
  return refused;
}

}  // namespace

TEST_CASE("bad parameters are refused and leave the layout as it was") {
  Layout layout = floats(1);
  const std::string longest(GRADSHM_MAX_NAME, 'x');
  CHECK(add(layout, nullptr) == GRADSHM_INVALID);
  CHECK(add(layout, "") == GRADSHM_BAD_LAYOUT);
  CHECK(add(layout, "p0") == GRADSHM_BAD_LAYOUT);
  CHECK(answer(add(layout, "p0")).says("'p0' is registered twice"));
  CHECK(add(layout, (longest + "x").c_str()) == GRADSHM_BAD_LAYOUT);
  CHECK(add(layout, "tab\there") == GRADSHM_BAD_LAYOUT);
  CHECK(add(layout, "\xff") == GRADSHM_BAD_LAYOUT);
  for (const int dtype : {0, 5, -1}) CHECK(add(layout, "d", dtype) == GRADSHM_INVALID);
  CHECK(add(layout, "negative", GRADSHM_F32, {2, -1}) == GRADSHM_BAD_LAYOUT);
  CHECK(add(layout, "huge", GRADSHM_F64, {std::int64_t{1} << 40, std::int64_t{1} << 40}) == GRADSHM_BAD_LAYOUT);
  CHECK(add(layout, "dims", GRADSHM_F32, std::vector<std::int64_t>(17, 1)) == GRADSHM_INVALID);
  CHECK(gradshm_layout_add(const_cast<gradshm_layout_t*>(layout.get()), "null", GRADSHM_F32, nullptr, 2) == GRADSHM_INVALID);
  CHECK(layout.size() == 1);
  CHECK(add(layout, longest.c_str()) == GRADSHM_OK);
  CHECK(layout.size() == 2);
}

TEST_CASE("bad orders, aliases and groups are refused") {
  Layout layout = floats(1);
  auto* raw = const_cast<gradshm_layout_t*>(layout.get());
  const char* aliases[] = {"other", nullptr};
  auto desc = detail::sized<gradshm_parameter_desc_t>();
  CHECK(gradshm_layout_add_parameter(raw, &desc) == GRADSHM_INVALID);
  desc.name = "a", desc.dtype = GRADSHM_F32, desc.order = 2;
  CHECK(answer(gradshm_layout_add_parameter(raw, &desc)).says("order takes"));
  desc.order = GRADSHM_ORDER_C, desc.alias_count = 1;
  CHECK(gradshm_layout_add_parameter(raw, &desc) == GRADSHM_INVALID);
  desc.aliases = aliases, desc.alias_count = 2;
  CHECK(gradshm_layout_add_parameter(raw, &desc) == GRADSHM_INVALID);
  aliases[1] = "p0";
  CHECK(gradshm_layout_add_parameter(raw, &desc) == GRADSHM_BAD_LAYOUT);
  desc.alias_count = 0, desc.group = "bad\ngroup";
  CHECK(gradshm_layout_add_parameter(raw, &desc) == GRADSHM_BAD_LAYOUT);
  desc.size = 0;
  CHECK(answer(gradshm_layout_add_parameter(raw, &desc)).says("gradshm_parameter_desc_t.size is not set"));
  CHECK(gradshm_layout_add_parameter(raw, nullptr) == GRADSHM_INVALID);
  CHECK(gradshm_layout_add_parameter(nullptr, &desc) == GRADSHM_INVALID);
  CHECK(layout.size() == 1);
}

TEST_CASE("an empty layout is refused and spoils nothing") {
  ServerThread server(summing(1));
  CHECK(attach_failure(server.name(), Layout()).code == GRADSHM_BAD_LAYOUT);
  Worker worker = Worker::attach(server.name(), floats(1));
  check_exact_round({&worker});
}

TEST_CASE("parameters without elements beside others change nothing") {
  Layout layout;
  layout.add("empty", DType::f32, {0, 4}).add("full", DType::f32, {3}).add("last", DType::f32, {2, 0});
  Team team(layout, summing(2, kOneEach));
  for (int round = 0; round < 3; ++round) check_exact_round({&team[0], &team[1]});
  CHECK(team[0].result_info("empty").count == 2);
  CHECK(team[0].parameter("empty").bytes == 0);
}

TEST_CASE("a layout of nothing but parameters without elements works and its rounds close") {
  for (const std::uint64_t bucket_bytes : {std::uint64_t{0}, kOneEach}) {
    Layout layout;
    layout.add("a", DType::f32, {0, 4}).add("b", DType::bf16, {0}).add("c", DType::f64, {7, 0, 7});
    Team team(layout, summing(2, bucket_bytes));
    for (std::uint64_t round = 1; round <= 3; ++round) {
      for (Worker& worker : team.workers) CHECK(commit(worker) == Outcome::ok);
      for (Worker& worker : team.workers) CHECK(wait_for(worker, round) == Outcome::ok);
    }
    CHECK(team[0].slot<std::byte>("b").empty());
    CHECK(team[0].info().slot_bytes == 0);
    CHECK(team[0].round(3).contributors[0] == 3);
    CHECK(team[0].round(3).sum_of_squares == 0);
    CHECK(gradshm_read(team[0].get(), 0, nullptr, 0, 0, nullptr) == GRADSHM_OK);
  }
}

TEST_CASE("a scalar has one element") {
  Layout layout;
  layout.add("loss", DType::f32, {});
  Team team(layout, summing(2));
  check_exact_round({&team[0], &team[1]});
  CHECK(team[0].parameter("loss").numel == 1);
  CHECK(team[0].parameter("loss").ndim == 0);
}

TEST_CASE("100,000 parameters are taken, found by name and summed") {
  constexpr std::size_t kParameters = 100'000;
  Team team(floats(kParameters, 1), summing(2));
  CHECK(team[0].size() == kParameters);
  CHECK(team[0].find("p99999") == 99'999);
  for (Worker& worker : team.workers) {
    fill(worker, 0, 1), fill(worker, 50'000, 2), fill(worker, 99'999, 3);
    CHECK(commit(worker) == Outcome::ok);
  }
  for (Worker& worker : team.workers) CHECK(wait_for(worker) == Outcome::ok);
  CHECK(all_are(team[1], 0, 2));
  CHECK(all_are(team[1], 50'000, 4));
  CHECK(all_are(team[1], 99'999, 6));
  CHECK(all_are(team[1], 1, 0));
  CHECK(team[0].round(1).sum_of_squares == 4 + 16 + 36);
}

TEST_CASE("a layout of other names, counts, dtypes or shapes is refused in words, and nobody else notices") {
  Team team(floats(3), summing(1));
  const std::string& name = team.server.name();
  Layout shape, dtype, names;
  shape.add("p0", DType::f32, {4}).add("p1", DType::f32, {2, 2}).add("p2", DType::f32, {4});
  dtype.add("p0", DType::f32, {4}).add("p1", DType::f32, {4}).add("p2", DType::bf16, {4});
  for (const char* parameter : {"module.p0", "module.p1", "module.p2"}) names.add(parameter, DType::f32, {4});
  CHECK(mismatch(name, shape).says("parameter 'p1' is f32[4] there and f32[2,2] here (1 of 3 parameters differs)"));
  CHECK(mismatch(name, dtype).says("parameter 'p2' is f32[4] there and bf16[4] here"));
  CHECK(mismatch(name, floats(2)).says("3 parameters there and 2 here; parameter 'p2' is missing here"));
  CHECK(mismatch(name, floats(4)).says("'p3' is not known there"));
  CHECK(mismatch(name, names).says("without the prefix 'module.' the names here would match"));
  check_exact_round({&team[0]});
}

TEST_CASE("registration order does not matter to who matches whom, indexes are the instance's") {
  Team team(floats(3), summing(1));
  Layout reversed;
  reversed.add("p2", DType::f32, {4}).add("p1", DType::f32, {4}).add("p0", DType::f32, {4});
  Worker other = Worker::attach(team.server.name(), reversed, unadmitted());
  check_exact_round({&team[0]});
  CHECK(other.wait_admitted(kLong) == 2);
  CHECK(other.find("p2") == 2);
  fill_all(team[0], 1), fill_all(other, 0), fill(other, other.find("p2"), 5);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(commit(other) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(all_are(team[0], team[0].find("p0"), 1));
  CHECK(all_are(team[0], team[0].find("p2"), 6));
}

TEST_CASE("a layout may be destroyed after attach") {
  ServerThread server(summing(1));
  std::optional<Layout> layout(floats(2));
  Worker worker = Worker::attach(server.name(), *layout);
  layout.reset();
  CHECK(std::string(worker.parameter(std::size_t{1}).name) == "p1");
  check_exact_round({&worker});
}

}  // namespace gradshm::test
