// The memory model itself, on programs whose outcomes are known.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "protocol/atomics.hpp"

using namespace gradshm::core;
using namespace gradshm::test;

namespace {

struct Litmus {
  std::uint64_t x = 0, y = 0, z = 0;
  std::array<std::uint64_t, 4> r{};
  std::set<std::array<std::uint64_t, 4>> outcomes;
  Outcome outcome;

  Litmus& run(std::vector<Explorer::Body> threads) {
    Explorer::Program program;
    program.threads = std::move(threads);
    program.set_up = [this] { r = {}; };
    program.finished = [this] {
      outcomes.insert(r);
      return std::string();
    };
    program.reset = [] { memory().reset(); };
    outcome = explorer().explore(program, {});
    return *this;
  }
  [[nodiscard]] bool saw(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0, std::uint64_t d = 0) const {
    return outcomes.count({a, b, c, d}) != 0;
  }
};

}  // namespace

TEST_CASE("store buffering: both loads may be old unless stores and loads are seq_cst") {
  Litmus weak, mixed, strong;
  weak.run({[&] { store_release(weak.x, 1), weak.r[0] = load_acquire(weak.y); }, [&] { store_release(weak.y, 1), weak.r[1] = load_acquire(weak.x); }});
  CHECK(weak.outcomes.size() == 4);
  CHECK(weak.outcome.executions == 4);
  mixed.run({[&] { store_seq_cst(mixed.x, 1), mixed.r[0] = load_seq_cst(mixed.y); }, [&] { store_seq_cst(mixed.y, 1), mixed.r[1] = load_acquire(mixed.x); }});
  CHECK(mixed.saw(0, 0));
  strong.run({[&] { store_seq_cst(strong.x, 1), strong.r[0] = load_seq_cst(strong.y); }, [&] { store_seq_cst(strong.y, 1), strong.r[1] = load_seq_cst(strong.x); }});
  CHECK_FALSE(strong.saw(0, 0));
  CHECK(strong.outcomes.size() == 3);
  CHECK(strong.outcome.exhausted);
}

TEST_CASE("message passing: the payload is visible with release and acquire, not with less") {
  Litmus strong, no_release, no_acquire;
  strong.run({[&] { store_relaxed(strong.x, 1), store_release(strong.y, 1); }, [&] { strong.r[0] = load_acquire(strong.y), strong.r[1] = load_relaxed(strong.x); }});
  CHECK(strong.outcomes.size() == 3);
  CHECK_FALSE(strong.saw(1, 0));
  no_release.run({[&] { store_relaxed(no_release.x, 1), store_relaxed(no_release.y, 1); }, [&] { no_release.r[0] = load_acquire(no_release.y), no_release.r[1] = load_relaxed(no_release.x); }});
  CHECK(no_release.saw(1, 0));
  no_acquire.run({[&] { store_relaxed(no_acquire.x, 1), store_release(no_acquire.y, 1); }, [&] { no_acquire.r[0] = load_relaxed(no_acquire.y), no_acquire.r[1] = load_relaxed(no_acquire.x); }});
  CHECK(no_acquire.saw(1, 0));
}

TEST_CASE("message passing by fences: both are needed") {
  for (const bool release : {false, true})
    for (const bool acquire : {false, true}) {
      Litmus it;
      it.run({[&] {
                store_relaxed(it.x, 1);
                if (release) fence_release();
                store_relaxed(it.y, 1);
              },
              [&] {
                it.r[0] = load_relaxed(it.y);
                if (acquire) fence_acquire();
                it.r[1] = load_relaxed(it.x);
              }});
      CHECK(it.saw(1, 0) == !(release && acquire));
      CHECK(it.saw(1, 1));
      CHECK(it.saw(0, 1));
    }
}

TEST_CASE("an update goes on with the release of the store that it read; a plain store does not") {
  Litmus update, store;
  update.run({[&] { store_relaxed(update.x, 1), store_release(update.y, 1), add_relaxed(update.y, 1); }, [&] { update.r[0] = load_acquire(update.y), update.r[1] = load_relaxed(update.x); }});
  CHECK_FALSE(update.saw(2, 0));
  store.run({[&] { store_relaxed(store.x, 1), store_release(store.y, 1), store_relaxed(store.y, 2); }, [&] { store.r[0] = load_acquire(store.y), store.r[1] = load_relaxed(store.x); }});
  CHECK(store.saw(2, 0));
}

TEST_CASE("coherence: no thread sees a word go back, also through another thread") {
  Litmus twice, through;
  twice.run({[&] { store_relaxed(twice.x, 1), store_relaxed(twice.x, 2); }, [&] { twice.r[0] = load_relaxed(twice.x), twice.r[1] = load_relaxed(twice.x); }});
  CHECK(twice.outcomes.size() == 6);
  for (const auto& r : twice.outcomes) CHECK(r[0] <= r[1]);
  through.run({[&] { store_relaxed(through.x, 1); },
               [&] { through.r[0] = load_relaxed(through.x), store_release(through.y, 1); },
               [&] { through.r[1] = load_acquire(through.y), through.r[2] = load_relaxed(through.x); }});
  CHECK(through.saw(1, 1, 1));
  CHECK(through.saw(1, 0, 0));
  CHECK_FALSE(through.saw(1, 1, 0));
}

TEST_CASE("independent reads of independent writes may disagree on the order, unless all are seq_cst") {
  for (const bool strong : {false, true}) {
    Litmus it;
    const auto get = [&](std::uint64_t& word) { return strong ? load_seq_cst(word) : load_acquire(word); };
    const auto put = [&](std::uint64_t& word) { strong ? store_seq_cst(word, 1) : store_release(word, 1); };
    it.run({[&] { put(it.x); }, [&] { put(it.y); }, [&] { it.r[0] = get(it.x), it.r[1] = get(it.y); }, [&] { it.r[2] = get(it.y), it.r[3] = get(it.x); }});
    CHECK(it.saw(1, 0, 1, 0) == !strong);
    CHECK(it.outcomes.size() == (strong ? 15 : 16));
    CHECK(it.outcome.executions == it.outcomes.size());
  }
}

TEST_CASE("a relaxed load may pass a seq_cst load that follows it") {
  Litmus relaxed, acquire;
  relaxed.run({[&] { store_seq_cst(relaxed.x, 1), store_seq_cst(relaxed.y, 1); }, [&] { relaxed.r[0] = load_relaxed(relaxed.y), relaxed.r[1] = load_seq_cst(relaxed.x); }});
  CHECK(relaxed.saw(1, 0));
  acquire.run({[&] { store_seq_cst(acquire.x, 1), store_seq_cst(acquire.y, 1); }, [&] { acquire.r[0] = load_acquire(acquire.y), acquire.r[1] = load_seq_cst(acquire.x); }});
  CHECK_FALSE(acquire.saw(1, 0));
}

TEST_CASE("write to read causality: what was read is handed on by release and acquire") {
  Litmus it;
  it.run({[&] { store_release(it.x, 1); },
          [&] { it.r[0] = load_acquire(it.x), store_release(it.y, 1); },
          [&] { it.r[1] = load_acquire(it.y), it.r[2] = load_relaxed(it.x); }});
  CHECK_FALSE(it.saw(1, 1, 0));
  CHECK(it.saw(1, 1, 1));
  CHECK(it.saw(0, 1, 0));
}

TEST_CASE("plain bytes: a race is found whichever access comes first, and none where the order is known") {
  Litmus none, late, reuse, torn;
  const auto pass = [](Litmus& it, bool release) {
    it.run({[&it, release] {
              memory().plain_write(&it.x, 7);
              release ? store_release(it.y, 1) : store_relaxed(it.y, 1);
            },
            [&it] {
              if (load_acquire(it.y) == 1) it.r[0] = memory().plain_read(&it.x);
            }});
  };
  pass(none, true);
  CHECK(none.outcome.error == "");
  CHECK(none.saw(7));
  pass(late, false);
  CHECK(late.outcome.error.find("data race") != std::string::npos);
  // The reader is done with the bytes; only an acquire lets the writer write again.
  reuse.run({[&] { reuse.r[0] = memory().plain_read(&reuse.x), store_release(reuse.y, 1); },
             [&] {
               if (load_relaxed(reuse.y) == 1) memory().plain_write(&reuse.x, 1);
             }});
  CHECK(reuse.outcome.error.find("data race") != std::string::npos);
}

TEST_CASE("a wake-up that comes between look and sleep is not lost if the futex word turns before it; a missing one is a deadlock") {
  for (const bool wakes : {false, true}) {
    Litmus it;
    std::uint32_t futex = 0;
    it.run({[&] {
              const std::uint32_t seen = load_acquire(futex);
              if (load_acquire(it.x) == 0) futex_wait(futex, seen, 1);
              it.r[0] = 1;
            },
            [&] {
              store_release(it.x, 1);
              add_seq_cst(futex, 1);
              if (wakes) futex_wake_all(futex);
            }});
    CHECK(it.outcome.error.empty() == wakes);
    CHECK(it.saw(1) == wakes);
  }
}

TEST_CASE("a ring is not lost whether it comes before or after the sleeper lies down") {
  Litmus it;
  it.run({[&] { memory().sleep_until_rung(), it.r[0] = load_relaxed(it.x); }, [&] { store_relaxed(it.x, 1), ring_doorbell(0); }});
  CHECK(it.outcome.error == "");
  CHECK(it.saw(0));  // a ring alone publishes nothing
  CHECK(it.saw(1));
}
