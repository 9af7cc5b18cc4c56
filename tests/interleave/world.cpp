#include "interleave/world.hpp"

#include <bit>

#include "reduce/reduce.hpp"

namespace gradshm::core {

// The sums stand in for src/reduce: slots are plain bytes that nobody may change meanwhile, the result is copied by observers while it
// changes.
struct HostReducer::Pool {};
HostReducer::HostReducer(unsigned) {}
HostReducer::~HostReducer() = default;
unsigned HostReducer::threads() const noexcept { return 1; }

void HostReducer::sum(std::span<const SumRun> runs, std::span<SumStats>) {
  for (const SumRun& run : runs)
    for (std::uint64_t i = 0; i < run.numel; ++i) {
      double sum = 0;
      for (const void* source : run.sources) sum += std::bit_cast<double>(test::memory().plain_read(static_cast<const std::uint64_t*>(source) + i));
      store_relaxed(static_cast<std::uint64_t*>(run.out)[i], std::bit_cast<std::uint64_t>(sum));
    }
}

}  // namespace gradshm::core

namespace gradshm::test {
namespace {

Manifest manifest_of(std::size_t buckets) {
  Manifest manifest;
  for (std::size_t i = 0; i < buckets; ++i) {
    Parameter parameter;
    parameter.name = "p" + std::to_string(i), parameter.dtype = DType::f64, parameter.shape = {1};
    manifest.add(parameter);
  }
  return manifest;
}

ServerOptions options_of(unsigned workers) {
  ServerOptions options;
  options.op = Op::sum, options.expect = workers, options.layout.bucket_bytes = 1;  // each parameter is a bucket
  return options;
}

MemFd copy_of(const MemFd& file) { return MemFd(UniqueFd(dup(file.fd()))); }

}  // namespace

void expect(bool holds, const char* what) {
  if (!holds) explorer().fail(what);
}
Deadline never() { return Deadline::after(-1); }

World::World(unsigned workers, std::size_t buckets)
    : arena(Layout(manifest_of(buckets), options_of(workers).layout), options_of(workers), 7, 1, workers), options(options_of(workers)) {
  memory().forget_places();
  view.emplace(copy_of(arena.control.file), copy_of(arena.layout_file), copy_of(arena.result.file), 7);
  memory().same_memory(view->control().header, arena.control.mapping.data(), arena.control.mapping.size());
  memory().same_memory(view->result(0) - (arena.result.gradients - arena.result.mapping.data()), arena.result.mapping.data(), arena.result.mapping.size());
  for (std::size_t i = 0; i < buckets; ++i) memory().stored_at_once(&arena.result.buckets[i].count);
  for (unsigned rank = 0; rank < workers; ++rank) add_member(rank);
}

void World::add_member(unsigned rank) {
  auto member = std::make_shared<Member>();
  member->rank = rank, member->generation = rank + 1;
  member->slot_file = create_slot(arena.shape, 7, arena.layout.layout_fingerprint(), member->generation, rank);
  member->slot = Mapping(member->slot_file, Mapping::Access::read_write, arena.shape.total, "slot");
  member->contributions.resize(arena.layout.buckets().size());
  WorkerWords::Parts parts;
  parts.control = arena.control.view.words, parts.entry = &arena.control.view.members[rank];
  parts.slot = member->slot.at<SlotWords>(arena.shape.words), parts.generation = member->generation;
  words.emplace_back(parts);
  members.push_back(std::move(member));
}

void World::set_up(unsigned at_once) {
  options.expect = at_once;
  publisher.emplace(arena);
  rounds.emplace(arena, options, *publisher, [](const MemberPtr&, const std::string& why) { explorer().fail(why); });
  committers.clear();
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i]->state = MemberState::attached, members[i]->first_round = 0;
    committers.push_back(std::make_unique<Committer>(arena.layout, arena.shape, members[i]->slot.data(), std::vector<bool>(), words[i]));
    rounds->ready(members[i]);
  }
}

void World::tear_down() {
  rounds.reset(), publisher.reset();
  committers = decltype(committers)();
  memory().reset();
}

void World::serve_until(std::uint64_t round) {
  while (rounds->closed_round() < round) {
    while (rounds->turn()) {}
    if (rounds->closed_round() >= round) return;
    publisher->idle(true);
    if (!rounds->turn()) memory().sleep_until_rung();
    publisher->idle(false);
  }
}

void World::write_gradient(unsigned worker, std::uint64_t round, std::size_t bucket) {
  auto* const bytes = members[worker]->slot.at<std::uint64_t>(arena.shape.gradients + arena.layout.buckets()[bucket].offset);
  memory().plain_write(bytes, std::bit_cast<std::uint64_t>(gradient(worker, round, bucket)));
}

Status World::commit(unsigned worker, std::uint64_t& ret_round) {
  return committers[worker]->commit_buckets(0, arena.layout.buckets().size(), {}, ret_round);
}

void World::publish(unsigned worker, std::size_t bucket, std::uint64_t round) {
  WorkerWords::publish_bucket(*members[worker]->slot.at<CommitBlock>(arena.shape.blocks[bucket]), round, 1, PresenceKind::all);
}

Status World::wait(unsigned worker, std::uint64_t round) { return words[worker].wait(round, never()); }

double World::result(std::size_t bucket) const {
  return std::bit_cast<double>(memory().plain_read(reinterpret_cast<const std::uint64_t*>(arena.result.gradients + arena.layout.buckets()[bucket].offset)));
}

}  // namespace gradshm::test
