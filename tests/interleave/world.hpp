// A server's memory with a few workers, and per execution the server's and the workers' real code on it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "client/view.hpp"
#include "daemon/publisher.hpp"
#include "daemon/rounds.hpp"
#include "interleave/explorer.hpp"
#include "interleave/memory.hpp"
#include "protocol/committer.hpp"
#include "protocol/worker_words.hpp"

namespace gradshm::test {

using namespace gradshm::core;

// What a worker hands in for a bucket and round: sums of any set of workers and rounds differ.
[[nodiscard]] constexpr double gradient(unsigned worker, std::uint64_t round, std::size_t bucket = 0) {
  return static_cast<double>((worker == 0 ? 1 : 16) * (round == 1 ? 1 : 2) + 256 * bucket);
}

class World {
 public:
  World(unsigned workers, std::size_t buckets);

  // Per execution. Members from the start: `members` of the workers; the others are ready, if there are any, and wait for an opening.
  void set_up(unsigned members);
  void tear_down();

  // The server's loop (Server::run, sleep) until `round` is closed.
  void serve_until(std::uint64_t round);
  void write_gradient(unsigned worker, std::uint64_t round, std::size_t bucket = 0);
  // Commits every bucket to the open round.
  Status commit(unsigned worker, std::uint64_t& ret_round);
  void publish(unsigned worker, std::size_t bucket, std::uint64_t round);
  Status wait(unsigned worker, std::uint64_t round);
  [[nodiscard]] double result(std::size_t bucket = 0) const;  // as a member reads it, who knows that it does not change

  Arena arena;
  std::optional<InstanceView> view;  // an observer's
  std::vector<MemberPtr> members;
  std::optional<Publisher> publisher;
  std::optional<Rounds> rounds;
  std::vector<WorkerWords> words;
  std::vector<std::unique_ptr<Committer>> committers;
  ServerOptions options;

 private:
  void add_member(unsigned rank);
};

void expect(bool holds, const char* what);
[[nodiscard]] Deadline never();

}  // namespace gradshm::test
