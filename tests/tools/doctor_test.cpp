#include "doctor_checks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli_table.hpp"
#include "doctor_text.hpp"

using namespace gradshm::tools;
using namespace gradshm::core;

namespace {

Facts healthy() {
  Facts facts;
  facts.instance = "default", facts.release = "6.1.0-18-amd64", facts.uid = 1000, facts.gid = 1000;
  facts.features = {{"memfd with seals", ""}, {"pidfd_open", ""}};
  facts.shm_free_bytes = 1'000'000'000;
  facts.space = {{8'000'000'000, "free memory"}, {4'000'000'000, "memory cgroup /job"}};
  facts.need = {"the smallest layout with 1 worker", 229'376, 208'896};
  facts.descriptors = 1024, facts.locked_bytes = 8'388'608;
  facts.run_directory = {"/run/user/1000/gradshm", true, true, false, 1000, 0700, 0};
  facts.instance_directory = {"/run/user/1000/gradshm/default", false, false, false, 0, 0, 0};
  facts.socket_path = "/run/user/1000/gradshm/default/sock";
  facts.huge_pages = "always [madvise] never", facts.shmem_huge_pages = "always [never]";
  facts.simd_targets = {"AVX2", "SSE4"};
  facts.cpus = 4, facts.cpus_online = 8, facts.numa_nodes = 1;
  return facts;
}

Finding finding_of(const Facts& facts, const std::string& check) {
  const std::vector<Finding> findings = examine(facts);
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) { return finding.check == check; });
  REQUIRE_MESSAGE(found != findings.end(), check, " was not checked");
  return *found;
}

bool says(const Finding& finding, const std::string& text) { return finding.found.find(text) != std::string::npos || finding.advice.find(text) != std::string::npos; }

// A FAIL, alone, that says this and what to do; and no server would start.
void check_fails(const Facts& facts, const std::string& check, const std::string& text) {
  const std::vector<Finding> findings = examine(facts);
  CHECK_FALSE(would_start(findings));
  for (const Finding& finding : findings) CHECK((finding.verdict == Verdict::fail) == (finding.check == check));
  const Finding failed = finding_of(facts, check);
  CHECK_MESSAGE(says(failed, text), failed.found, " -> ", failed.advice);
  CHECK_FALSE(failed.advice.empty());
}

void check_warns(const Facts& facts, const std::string& check, const std::string& text) {
  CHECK(would_start(examine(facts)));
  const Finding warned = finding_of(facts, check);
  CHECK(warned.verdict == Verdict::warn);
  CHECK_MESSAGE(says(warned, text), warned.found, " -> ", warned.advice);
}

BeaconData beacon_of(const std::string& name, const std::string& directory) {
  BeaconData beacon;
  beacon.pid = 4700;
  name.copy(beacon.name, sizeof beacon.name);
  (directory + "/" + name + "/sock").copy(beacon.socket_path, sizeof beacon.socket_path);
  return beacon;
}

}  // namespace

TEST_CASE("on a healthy machine every check is OK and none has advice") {
  for (const Finding& finding : examine(healthy())) {
    CHECK_MESSAGE(finding.verdict == Verdict::ok, finding.check, ": ", finding.found);
    CHECK(finding.advice.empty());
    CHECK_FALSE(finding.found.empty());
  }
}

TEST_CASE("a check stands in the list once") {
  std::set<std::string> names;
  for (const Finding& finding : examine(healthy())) CHECK(names.insert(finding.check).second);
  CHECK(names.size() >= 15);
}

TEST_CASE("a feature that does not work is named with its error, and a seccomp filter is pointed at") {
  Facts facts = healthy();
  facts.features.push_back({"F_SEAL_FUTURE_WRITE", "Operation not permitted"});
  check_fails(facts, "features", "F_SEAL_FUTURE_WRITE (Operation not permitted) does not work");
  CHECK_FALSE(says(finding_of(facts, "features"), "seccomp"));
  facts.seccomp = 2;
  check_fails(facts, "features", "seccomp filter is active");
}

TEST_CASE("an old kernel is a warning: what was tried decides") {
  Facts facts = healthy();
  facts.release = "5.3.18-lp152";
  check_warns(facts, "kernel", "older than 5.4");
  facts.release = "5.4.0";
  CHECK(finding_of(facts, "kernel").verdict == Verdict::ok);
  facts.release = "nonsense";
  CHECK(finding_of(facts, "kernel").verdict == Verdict::ok);
}

TEST_CASE("too little memory fails with bytes needed, bytes free and the limit's name") {
  Facts facts = healthy();
  facts.need = {"model.tsv with 8 workers", 4'000'000'001, 1'000'000};
  check_fails(facts, "memory", "model.tsv with 8 workers needs 4,000,000,001 bytes, 4,000,000,000 are free (memory cgroup /job)");
  facts.need.total = 4'000'000'000;
  CHECK(would_start(examine(facts)));
  CHECK(says(finding_of(facts, "memory"), "8.0 GB (free memory), 4.0 GB (memory cgroup /job)"));
}

TEST_CASE("the server's cgroup must hold the result; for the slots, which may be charged elsewhere, there is a warning") {
  Facts facts = healthy();
  facts.space = {{8'000'000'000, "free memory", false}, {1'000'000'000, "memory cgroup /job", true}};
  facts.need = {"model.tsv with 4 workers", 5'000'000'000, 1'000'000'000, 1'000'000'001};
  check_fails(facts, "memory", "model.tsv with 4 workers needs 1,000,000,001 bytes for the result, 1,000,000,000 are free (memory cgroup /job)");
  facts.need.own = 1'000'000'000;
  CHECK(would_start(examine(facts)));
  CHECK(finding_of(facts, "memory").verdict == Verdict::warn);
  facts.need.total = 1'000'000'000;
  CHECK(finding_of(facts, "memory").verdict == Verdict::ok);
}

TEST_CASE("a cgroup without a limit is not shown as one of petabytes") {
  Facts facts = healthy();
  facts.space.push_back({(1ull << 63) - 4096, "memory cgroup /"});
  CHECK_FALSE(says(finding_of(facts, "memory"), "memory cgroup /)"));
}

TEST_CASE("a limit of file sizes below the largest object fails") {
  Facts facts = healthy();
  facts.file_bytes = facts.need.largest_file - 1;
  check_fails(facts, "file size", "RLIMIT_FSIZE is 208,895");
  facts.file_bytes = facts.need.largest_file;
  CHECK(would_start(examine(facts)));
}

TEST_CASE("few descriptors are a warning that counts workers, hardly any are a failure") {
  Facts facts = healthy();
  facts.descriptors = 256;
  check_warns(facts, "descriptors", "enough for about 60 workers");
  facts.descriptors = 10;
  check_warns(facts, "descriptors", "enough for about 0 workers");
  facts.descriptors = 9;
  check_fails(facts, "descriptors", "RLIMIT_NOFILE is 9");
  facts.descriptors = std::nullopt;
  CHECK(finding_of(facts, "descriptors").verdict == Verdict::ok);
}

TEST_CASE("a tight address space is a warning") {
  Facts facts = healthy();
  facts.address_space = 100'000'000;
  check_warns(facts, "address space", "RLIMIT_AS is 100,000,000");
  facts.need.total = UINT64_MAX;
  CHECK(finding_of(facts, "address space").verdict == Verdict::warn);
}

TEST_CASE("/dev/shm without write access or space fails with the system's words") {
  Facts facts = healthy();
  facts.beacon_error = EACCES;
  check_fails(facts, "/dev/shm", "Permission denied");
  facts.beacon_error = ENOSPC;
  check_fails(facts, "/dev/shm", "No space left on device");
}

TEST_CASE("a run directory that is foreign, writable by others, a link or no directory fails") {
  Facts facts = healthy();
  const DirectoryFacts good = facts.run_directory;
  facts.run_directory.owner = 0;
  check_fails(facts, "run directory", "belongs to uid 0, you are uid 1000");
  facts.run_directory = good, facts.run_directory.mode = 0702;
  check_fails(facts, "run directory", "may be written by others");
  facts.run_directory.mode = 0720;
  check_fails(facts, "run directory", "chmod go-w /run/user/1000/gradshm");
  facts.run_directory = good, facts.run_directory.is_directory = false, facts.run_directory.is_link = true;
  check_fails(facts, "run directory", "is a symbolic link");
  facts.run_directory.is_link = false;
  check_fails(facts, "run directory", "is no directory");
  facts.run_directory = good, facts.run_directory.write_error = EACCES, facts.run_directory.mode = 0500;
  check_fails(facts, "run directory", "Permission denied");
}

TEST_CASE("a run directory that is not there is made, if that can be") {
  Facts facts = healthy();
  facts.run_directory = {"/nowhere/gradshm", false, false, false, 0, 0, 0};
  CHECK(says(finding_of(facts, "run directory"), "the server makes it"));
  facts.run_directory.write_error = ENOENT;
  check_fails(facts, "run directory", "cannot be made: No such file or directory");
}

TEST_CASE("the instance's own directory is judged like the one above it") {
  Facts facts = healthy();
  facts.instance_directory = {"/run/user/1000/gradshm/default", true, true, false, 1000, 0777, 0};
  check_fails(facts, "instance", "may be written by others");
}

TEST_CASE("a socket path that is too long fails") {
  Facts facts = healthy();
  facts.socket_error = "the socket path /a/b has 200 bytes, at most 107 are possible";
  check_fails(facts, "socket path", "200 bytes");
}

TEST_CASE("a bad layout file fails, and memory is judged without it") {
  Facts facts = healthy();
  facts.layout_error = "m.tsv: line 4 has 3 fields";
  check_fails(facts, "layout", "m.tsv: line 4");
}

TEST_CASE("a running server of that name is a warning, of another name or directory it is news") {
  Facts facts = healthy();
  facts.living = {beacon_of("default", "/elsewhere"), beacon_of("other", "/run/user/1000/gradshm")};
  CHECK(finding_of(facts, "instances").verdict == Verdict::ok);
  CHECK(says(finding_of(facts, "instances"), "'default' (pid 4700), 'other' (pid 4700) run"));
  facts.living.push_back(beacon_of("default", "/run/user/1000/gradshm"));
  check_warns(facts, "instances", "a second server 'default' would be refused");
  facts.living.clear(), facts.dead = {beacon_of("gone", "/elsewhere")};
  check_warns(facts, "instances", "none runs; dead: 'gone'");
  check_warns(facts, "instances", "restart a dead one under its name with the same --op and other options");
}

TEST_CASE("one CPU is a warning") {
  Facts facts = healthy();
  facts.cpus = 1;
  check_warns(facts, "CPUs", "may run on 1 of 8 CPUs");
}

TEST_CASE("SIMD targets, huge pages, container, sandbox and GPU are told") {
  Facts facts = healthy();
  CHECK(says(finding_of(facts, "SIMD"), "sums use AVX2"));
  CHECK(says(finding_of(facts, "huge pages"), "slots have pages of 4 KiB"));
  CHECK(says(finding_of(facts, "isolation"), "no sign of a container, in the initial pid namespace"));
  CHECK(says(finding_of(facts, "GPU"), "no GPU code"));
  CHECK(says(finding_of(facts, "GPU"), "is not there"));
  facts.initial_pid_namespace = false, facts.pid_namespace_depth = 2, facts.container_marks = {"/.dockerenv"}, facts.yama_scope = 1, facts.seccomp = 2, facts.cuda_driver = true;
  facts.shmem_huge_pages = "[always] never";
  CHECK(says(finding_of(facts, "isolation"), "in a container (/.dockerenv), in a pid namespace of its own (2 deep)"));
  CHECK(says(finding_of(facts, "sandbox"), "a seccomp filter is active, Yama ptrace_scope 1"));
  CHECK_FALSE(says(finding_of(facts, "huge pages"), "4 KiB"));
  CHECK_FALSE(says(finding_of(facts, "GPU"), "is not there"));
}

TEST_CASE("names and paths from elsewhere are escaped") {
  Facts facts = healthy();
  facts.living = {beacon_of("a\x1b[2J", "/x\n")};
  facts.run_directory.path = "/run/\x1b]0;", facts.run_directory.mode = 0777;
  for (const std::string& line : doctor_lines(examine(facts), kUnlimited, false)) CHECK(std::none_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
}

TEST_CASE("advice stands below its finding, and the last line is the verdict") {
  Facts facts = healthy();
  facts.file_bytes = 1, facts.cpus = 1;
  const std::vector<std::string> lines = doctor_lines(examine(facts), kUnlimited, false);
  const auto failed = std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("FAIL  file size"); });
  REQUIRE(failed != lines.end());
  CHECK(*(failed + 1) == "      -> raise it: ulimit -f unlimited");
  CHECK(lines.back() == "a server would NOT start here: " + std::to_string(examine(facts).size()) + " checks, 1 warning, 1 failure");
  CHECK(doctor_lines(examine(healthy()), kUnlimited, false).back().starts_with("a server would start here"));
  for (const std::string& line : doctor_lines(examine(facts), 80, false)) CHECK(line.size() <= 80);
}

TEST_CASE("colour goes around the verdict alone") {
  CHECK(doctor_lines(examine(healthy()), kUnlimited, true)[0].starts_with("\x1b[32mOK    \x1b[0mkernel"));
}

TEST_CASE("the document has every finding") {
  Facts facts = healthy();
  facts.file_bytes = 1;
  const auto document = nlohmann::json::parse(doctor_json_line("default", examine(facts)));
  CHECK(document["would_start"] == false);
  CHECK(document["failures"] == 1);
  CHECK(document["checks"].size() == examine(facts).size());
}

TEST_CASE("here the features are tried and work") {
  for (const Tried& tried : try_features()) CHECK_MESSAGE(tried.error.empty(), tried.feature, ": ", tried.error);
}
