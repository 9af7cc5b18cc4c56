// What a server may be started with: options, names, directories, layout files, memory.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/workers.hpp"

namespace gradshm::test {
namespace {

Failure create_failure(gradshm_server_options_t options) {
  const RunDirectory directory;
  const std::string name = fresh_name();
  options.size = sizeof options;
  if (options.name == nullptr) options.name = name.c_str();
  gradshm_server_t* server = nullptr;
  const int code = gradshm_server_create(&options, &server);
  Failure failure{code, gradshm_server_last_error()};
  CHECK((server != nullptr) == (code == GRADSHM_OK));
  gradshm_server_destroy(server);
  return failure;
}

template <class Change>
Failure create_with(Change&& change) {
  auto options = server_options();
  change(options);
  return create_failure(options);
}

Failure create_named(const std::string& name) {
  return create_with([&](auto& options) { options.name = name.c_str(); });
}

std::string write_file(const RunDirectory& directory, const std::string& name, const std::string& text) {
  const std::string path = directory.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

constexpr const char* kTsv = "name\tdtype\tshape\tnumel\np0\tfloat32\t4\t4\np1\tfloat32\t4\t4\n";

Failure create_from(const std::string& path) {
  return create_with([&](auto& options) { options.layout_path = path.c_str(); });
}

}  // namespace

TEST_CASE("options out of range are refused by name and with their range") {
  const Failure workers = create_with([](auto& options) { options.max_workers = 257; });
  CHECK(workers.code == GRADSHM_INVALID);
  CHECK(workers.says("max-workers is 257; it takes 1 to 256"));
  const Failure expect = create_with([](auto& options) { options.max_workers = 4, options.expect = 5; });
  CHECK(expect.code == GRADSHM_INVALID);
  CHECK(expect.says("expect is 5; it takes 1 to max-workers (4)"));
  const Failure threads = create_with([](auto& options) { options.reducer_threads = 1025; });
  CHECK(threads.code == GRADSHM_INVALID);
  CHECK(threads.says("reducer-threads is 1025"));
  for (const std::int32_t op : {-1, 3}) CHECK(create_with([&](auto& options) { options.op = op; }).says("op takes sum, mean or weighted-mean"));
  CHECK(create_with([](auto& options) { options.max_workers = 256, options.expect = 256; }).code == GRADSHM_OK);
}

TEST_CASE("server options without size or with NULL groups are refused") {
  auto options = server_options();
  gradshm_server_t* server = nullptr;
  CHECK(gradshm_server_create(&options, &server) == GRADSHM_INVALID);
  CHECK(std::string(gradshm_server_last_error()).find("gradshm_server_options_t.size is not set") != std::string::npos);
  CHECK(create_with([](auto& changed) { changed.group_count = 1; }).code == GRADSHM_INVALID);
  const char* groups[] = {nullptr};
  CHECK(create_with([&](auto& changed) { changed.groups = groups, changed.group_count = 1; }).code == GRADSHM_INVALID);
  CHECK(server == nullptr);
}

TEST_CASE("a group prefix that is no name is refused when the server starts, with or without a layout file") {
  const char* groups[] = {"bad\nprefix"};
  CHECK(create_with([&](auto& options) { options.groups = groups, options.group_count = 1; }).code != GRADSHM_OK);
}

TEST_CASE("bad instance names are refused") {
  for (const std::string& name : {std::string("a/b"), std::string("."), std::string(".."), std::string(65, 'x'), std::string("a b"),
                                  std::string("../../etc"), std::string("\xc3\xa4"), std::string("a\n")}) {
    CAPTURE(name);
    const Failure refused = create_named(name);
    CHECK(refused.code == GRADSHM_INVALID);
    CHECK(refused.says("is no instance name"));
    CHECK(attach_failure(name, floats(1)).code == GRADSHM_INVALID);
    CHECK(failure_of([&] { static_cast<void>(Observer::observe(name)); }).code == GRADSHM_INVALID);
  }
  CHECK(create_named(std::string(64, 'x')).code == GRADSHM_OK);
  CHECK(create_named("A-z_0.9").code == GRADSHM_OK);
}

TEST_CASE("without a name the environment's instance is meant") {
  ServerThread server(summing(1));
  const Environment environment("GRADSHM_INSTANCE", server.name());
  Worker worker = Worker::attach("", floats(1));
  check_exact_round({&worker});
  CHECK(create_with([](auto& options) { options.name = nullptr; }).code == GRADSHM_OK);
  const Environment bad("GRADSHM_INSTANCE", "a/b");
  gradshm_handle_t* handle = nullptr;
  CHECK(gradshm_attach(nullptr, floats(1).get(), nullptr, &handle) == GRADSHM_INVALID);
}

TEST_CASE("group prefixes given to the server weigh parameters together") {
  const char* groups[] = {"enc.", "enc.deep."};
  auto options = summing(1);
  options.groups = groups, options.group_count = 2;
  Layout layout;
  layout.add("enc.a", DType::f32, {4}).add("enc.deep.b", DType::f32, {4}).add("dec", DType::f32, {4});
  Team team(layout, options);
  CHECK(team[0].info().groups == 3);
  CHECK(team[0].parameter("enc.deep.b").group == team[0].find_group("enc.deep."));
  CHECK(team[0].parameter("enc.a").group == team[0].find_group("enc."));
  CHECK(team[0].commit_group(team[0].find_group("enc."), {.weight = 3}).status() == Outcome::ok);
  CHECK(commit(team[0]) == Outcome::ok);
  CHECK(wait_for(team[0]) == Outcome::ok);
  CHECK(team[0].round_group_weight(1, team[0].find_group("enc.")) == 3);
  CHECK(team[0].round_group_weight(1, team[0].find_group("enc.deep.")) == 1);
}

TEST_CASE("a layout file gives the layout before any worker comes") {
  const RunDirectory directory;
  const std::string path = write_file(directory, "layout.tsv", kTsv);
  auto options = summing(1);
  options.layout_path = path.c_str();
  ServerThread server(options);
  CHECK(Observer::observe(server.name()).size() == 2);
  CHECK(attach_failure(server.name(), floats(3)).code == GRADSHM_LAYOUT_MISMATCH);
  Worker part = Worker::attach(server.name(), floats(1), {.partial = true});
  fill(part, 0, 2);
  commit_and_wait(part);
  CHECK(all_are(part, 0, 2));
  CHECK(part.result_info("p1").present == 0);
}

TEST_CASE("layout files that are missing, no files, or malformed are refused by name") {
  const RunDirectory directory;
  const auto refused = [](const Failure& failure, int code, const std::string& path) { return failure.code == code && failure.says(path); };
  const std::string missing = directory.path() + "/none.tsv";
  CHECK(refused(create_from(missing), GRADSHM_NOT_FOUND, missing));
  CHECK(refused(create_from(directory.path()), GRADSHM_BAD_LAYOUT, directory.path()));
  CHECK(refused(create_from("/dev/null"), GRADSHM_BAD_LAYOUT, "/dev/null"));
  int number = 0;
  for (const char* text : {"", "name\n", "name\tdtype\tshape\tnumel\n", "name\tdtype\tshape\tnumel\np0\tint8\t4\t4\n",
                           "name\tdtype\tshape\tnumel\np0\tfloat32\t4\t5\n", "name\tdtype\tshape\tnumel\np0\tfloat32\t4\t4\np0\tfloat32\t4\t4\n"}) {
    CAPTURE(text);
    const std::string path = write_file(directory, std::to_string(number++) + ".tsv", text);
    CHECK(refused(create_from(path), GRADSHM_BAD_LAYOUT, ""));
    const std::string tensors = write_file(directory, std::to_string(number++) + ".safetensors", text);
    CHECK(refused(create_from(tensors), GRADSHM_BAD_LAYOUT, tensors));
  }
}

TEST_CASE("a server that could not start leaves its name free") {
  const RunDirectory directory;
  auto options = summing(1);
  const std::string name = fresh_name(), path = directory.path() + "/late.tsv";
  options.size = sizeof options, options.name = name.c_str(), options.layout_path = path.c_str();
  gradshm_server_t* server = nullptr;
  CHECK(gradshm_server_create(&options, &server) == GRADSHM_NOT_FOUND);
  CHECK_FALSE(std::filesystem::exists(directory.path() + "/" + name));
  write_file(directory, "late.tsv", kTsv);
  CHECK(gradshm_server_create(&options, &server) == GRADSHM_OK);
  gradshm_server_destroy(server);
}

TEST_CASE("a directory that others may write, or that is no directory, is refused") {
  const RunDirectory directory;
  const std::string open = directory.path() + "/open", file = write_file(directory, "file", "");
  std::filesystem::create_directory(open);
  for (const unsigned mode : {0777u, 0720u, 0702u}) {
    CHECK(chmod(open.c_str(), mode) == 0);
    const Environment environment("GRADSHM_DIR", open);
    const Failure refused = create_named("x");
    CHECK(refused.code == GRADSHM_PERMISSION);
    CHECK(refused.says("may be written by others"));
  }
  const Environment environment("GRADSHM_DIR", file);
  CHECK(create_named("x").code == GRADSHM_PERMISSION);
}

TEST_CASE("a directory of another user is refused with both uids") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: needs root to make a directory of another user");
    return;
  }
  const RunDirectory directory;
  const std::string foreign = directory.path() + "/foreign";
  std::filesystem::create_directory(foreign);
  CHECK(chown(foreign.c_str(), 12345, 12345) == 0);
  const Environment environment("GRADSHM_DIR", foreign);
  const Failure refused = create_named("x");
  CHECK(refused.code == GRADSHM_PERMISSION);
  CHECK(refused.says("belongs to uid 12345"));
}

TEST_CASE("a directory whose socket path would be too long is refused with its length") {
  const RunDirectory directory;
  const std::string deep = directory.path() + "/" + std::string(90, 'd');
  std::filesystem::create_directory(deep);
  const Environment environment("GRADSHM_DIR", deep);
  const Failure refused = create_named("x");
  CHECK(refused.code == GRADSHM_INVALID);
  CHECK(refused.says("at most 107 are possible"));
  CHECK(attach_failure("x", floats(1)).says("at most 107 are possible"));
}

TEST_CASE("want of memory is said with the bytes wanted and free when the server starts") {
  const RunDirectory directory;
  const std::string path = write_file(directory, "layout.tsv", kTsv);
  const Environment environment("GRADSHM_TEST_FREE_BYTES", "1000");
  const Failure refused = create_from(path);
  CHECK(refused.code == GRADSHM_NO_SPACE);
  CHECK(refused.says("1,000 are free (GRADSHM_TEST_FREE_BYTES)"));
  CHECK(refused.says("with 1 expected worker"));
}

TEST_CASE("want of memory at the first worker is told to that worker, and the server goes on") {
  ServerThread server(summing(1));
  {
    const Environment environment("GRADSHM_TEST_FREE_BYTES", "1000");
    const Failure refused = attach_failure(server.name(), floats(1));
    CHECK(refused.code == GRADSHM_NO_SPACE);
    CHECK(refused.says("1,000 are free"));
  }
  Worker worker = Worker::attach(server.name(), floats(2));
  check_exact_round({&worker});
}

TEST_CASE("want of memory for a worker's slot refuses that worker and nobody else") {
  Team team(floats(3), summing(1));
  {
    const Environment environment("GRADSHM_TEST_FREE_BYTES", "4095");
    const Failure refused = attach_failure(team.server.name(), floats(3), unadmitted(1));
    CHECK(refused.code == GRADSHM_NO_SPACE);
    CHECK(refused.says("a worker's slot needs 8,192 bytes, 4,095 are free"));
  }
  check_exact_round({&team[0]});
  Worker again = Worker::attach(team.server.name(), floats(3), unadmitted(1));
  check_exact_round({&team[0]});
  CHECK(again.wait_admitted(kLong) == 3);
  check_exact_round({&team[0], &again});
}

}  // namespace gradshm::test
