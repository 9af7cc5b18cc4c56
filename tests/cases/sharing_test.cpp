// Who may write where, and that nothing is copied.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "support.hpp"

using namespace gradshm;
using namespace gradshm::test;

namespace {

constexpr float kNumbers[] = {1, 10, 100, 1000};
enum Word : std::size_t { kWritten = 0, kInode = 4, kSlotsMapped = 8 };  // each + rank

const Mapped* holder_of(const std::vector<Mapped>& all, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto found = std::ranges::find_if(all, [at](const Mapped& mapped) { return mapped.begin <= at && at < mapped.end; });
  return found == all.end() ? nullptr : &*found;
}

void publish_slot(Board& board, const Worker& worker, std::size_t rank) {
  const std::vector<Mapped> slots = mappings(getpid(), "gradshm-slot");
  const Mapped* mine = holder_of(slots, worker.slot<float>("w").data());
  board.set(kInode + rank, mine == nullptr ? 0 : static_cast<long>(mine->inode));
  board.set(kSlotsMapped + rank, static_cast<long>(slots.size()));
}

// All four have written before anybody looks or commits.
int fill_own_slot(const std::string& instance, int rank, Board& board) {
  Verdict verdict;
  const auto own = static_cast<std::size_t>(rank);
  Worker worker = attach(instance, one_vector(1000), rank);
  fill(worker, kNumbers[own]);
  publish_slot(board, worker, own);
  board.set(kWritten + own, 1);
  for (std::size_t other = 0; other < 4; ++other) verdict.expect(reaches(board, kWritten + other, 1));
  verdict.expect(std::ranges::all_of(worker.slot<float>("w"), [&](float element) { return element == kNumbers[own]; }));
  verdict.expect(step(worker));
  verdict.expect(holds(worker, 1111));
  return verdict.code();
}

int fill_two_slots(const std::string& instance, Board& board) {
  int second = 0;
  std::thread thread([&] { second = fill_own_slot(instance, 3, board); });
  const int first = fill_own_slot(instance, 2, board);
  thread.join();
  return first + second;
}

// doctest's handler of SIGSEGV is inherited; a core file would only take time.
void die_plainly() {
  std::signal(SIGSEGV, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

int store_into_result(const std::string& instance) {
  Worker worker = attach(instance, one_vector(1000), 0);
  die_plainly();
  *const_cast<volatile float*>(worker.result<float>("w").data()) = 1;
  return 0;
}

int store_into_control(const std::string& instance) {
  Worker worker = attach(instance, one_vector(1000), 0);
  const std::vector<Mapped> control = mappings(getpid(), "gradshm-control");
  if (control.size() != 1) return 1;
  die_plainly();
  *reinterpret_cast<volatile std::uint64_t*>(control[0].begin) = 1;
  return 0;
}

bool can_be_made_writable(const Mapped& mapped) {
  return mprotect(reinterpret_cast<void*>(mapped.begin), mapped.end - mapped.begin, PROT_READ | PROT_WRITE) == 0;
}

int unprotect(const std::string& instance) {
  Verdict verdict;
  Worker worker = attach(instance, one_vector(1000), 0);
  for (const char* object : {"gradshm-control", "gradshm-result"}) {
    const std::vector<Mapped> found = mappings(getpid(), object);
    verdict.expect(found.size() == 1 && found[0].access == "r--s");
    for (const Mapped& mapped : found) verdict.expect(!can_be_made_writable(mapped));
  }
  return verdict.code();
}

int sum_resnet34(const std::string& instance, int rank) {
  Verdict verdict;
  Worker worker = attach(instance, Layout::from_tsv(data_path("resnet34.tsv")), rank);
  for (int round = 1; round <= 2; ++round) {
    fill(worker, 1);
    verdict.expect(step(worker));
    verdict.expect(holds(worker, 4));
  }
  for (std::size_t index = 0; index < worker.size(); ++index) verdict.expect(worker.result_info(index).count == 4);
  verdict.expect(worker.round(2).contributor_count == 4);
  verdict.expect(worker.info().bytes_copied == 0);
  return verdict.code();
}

std::uint64_t result_inode() {
  const std::vector<Mapped> found = mappings(getpid(), "gradshm-result");
  return found.size() == 1 ? found[0].inode : 0;
}

}  // namespace

TEST_CASE("S1: two processes and two threads of one process have four disjoint slots, and none sees a slot of another process") {
  DaemonProcess daemon({"--expect", "4", "--op", "sum"});
  Board board;
  std::vector<Child> workers;
  workers.emplace_back([&] { return fill_own_slot(daemon.name(), 0, board); });
  workers.emplace_back([&] { return fill_own_slot(daemon.name(), 1, board); });
  workers.emplace_back([&] { return fill_two_slots(daemon.name(), board); });
  CHECK(exit_codes(workers) == "0 0 0");
  std::set<long> inodes;
  for (std::size_t rank = 0; rank < 4; ++rank) inodes.insert(board.get(kInode + rank));
  CHECK(inodes.size() == 4);
  CHECK(inodes.count(0) == 0);
  CHECK(board.get(kSlotsMapped + 0) == 1);
  CHECK(board.get(kSlotsMapped + 1) == 1);
  CHECK(std::max(board.get(kSlotsMapped + 2), board.get(kSlotsMapped + 3)) == 2);
}

TEST_CASE("S1: a store into the result faults") {
  DaemonProcess daemon;
  Child child([&] { return store_into_result(daemon.name()); });
  CHECK(child.wait() == 128 + SIGSEGV);
}

TEST_CASE("S1: a store into the control object faults") {
  DaemonProcess daemon;
  Child child([&] { return store_into_control(daemon.name()); });
  CHECK(child.wait() == 128 + SIGSEGV);
}

TEST_CASE("S1: a worker cannot make result or control writable") {
  DaemonProcess daemon;
  Child child([&] { return unprotect(daemon.name()); });
  CHECK(child.wait() == 0);
}

TEST_CASE("S2: four workers with ResNet-34 and gradient 1 sum to 4 everywhere, and no byte is copied") {
  DaemonProcess daemon({"--expect", "4", "--op", "sum", "--layout", data_path("resnet34.tsv")});
  auto workers = start_workers(4, [&](int rank) { return sum_resnet34(daemon.name(), rank); });
  CHECK(exit_codes(workers) == "0 0 0 0");
}

TEST_CASE("S3: a process that knows instance name and GRADSHM_DIR attaches to the same memory") {
  DaemonProcess daemon({"--op", "sum"});
  const std::string directory = std::getenv("GRADSHM_DIR");
  CHECK(daemon.name().size() + directory.size() < 256);
  Board board;
  Child other([&] {
    if (!reaches(board, 0, 1)) return 1;
    setenv("GRADSHM_DIR", directory.c_str(), 1);
    Observer observer = Observer::observe(daemon.name());
    Verdict verdict;
    verdict.expect(holds(observer, 7));
    verdict.expect(static_cast<long>(result_inode()) == board.get(1));
    verdict.expect(static_cast<long>(observer.info().incarnation) == board.get(2));
    return verdict.code();
  });
  Worker worker = attach(daemon.name(), one_vector(1000), 0);
  fill(worker, 7);
  REQUIRE(step(worker));
  board.set(1, static_cast<long>(result_inode())), board.set(2, static_cast<long>(worker.info().incarnation));
  CHECK(board.get(1) != 0);
  board.set(0, 1);
  CHECK(other.wait() == 0);
}

TEST_CASE("S3: attaching without a server is a clear error that names gradshmd") {
  RunDirectory directory;
  const Layout layout = one_vector(4);
  int code = 0;
  std::string sentence;
  try {
    [[maybe_unused]] const Worker worker = attach("nobody-home", layout, 0);
  } catch (const Error& error) {
    code = error.code().value(), sentence = error.what();
  }
  CAPTURE(sentence);
  CHECK(code == GRADSHM_NO_SERVER);
  CHECK(contains(sentence, "nobody-home"));
  CHECK(contains(sentence, "gradshmd --name nobody-home"));
  CHECK(contains(sentence, directory.path()));
}
