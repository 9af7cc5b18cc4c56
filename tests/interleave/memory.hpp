// An operational model of C++20 memory for code whose words have one writing thread each (as gradshm's have one writing process).
//
// Every word keeps all its stores; with one writer, program order is modification order. What a thread knows is, for each word, the
// oldest store it may still read (coherence), and for each thread, how much of it happened before (a vector clock). Release stores and
// release fences hand that on, acquire loads and acquire fences take it. A load may read any store that is not older than what the thread
// knows. seq_cst accesses must also fit into one total order that respects "strongly happens before" and "coherence-ordered before" of
// C++20 [atomics.order]: kept as a graph, in which a load may not close a cycle. So seq_cst is neither an acquire-release nor the order
// of execution: a relaxed access may pass a seq_cst one wherever the standard lets it.
//
// Weaker behaviour that is left out: loads that read stores of their own future (load buffering).
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "interleave/explorer.hpp"

namespace gradshm::test {

enum class Order { relaxed, acquire, release, seq_cst };

// Where it is called, as a default argument. (clang 14 has no std::source_location.)
struct Place {
  const char* file;
  unsigned line;
  static constexpr Place current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) noexcept { return {file, line}; }
};

// A place in the source that accesses shared memory.
struct Site {
  Place place;
  const char* what;
  Order order;
};

struct SeenSite {
  std::string file;
  unsigned line = 0;
  std::string what;
  Order order = Order::relaxed;
};

inline constexpr std::size_t kMaxThreads = 4, kMaxWords = 1536, kMaxSeqCst = 256;

class Memory {
 public:
  // Accesses. Outside a running thread they go to the memory itself, and reset() takes them back.
  std::uint64_t load(const void* word, std::size_t bytes, const Site& site);
  void store(void* word, std::size_t bytes, std::uint64_t value, const Site& site);
  std::uint64_t add(void* word, std::size_t bytes, std::uint64_t value, const Site& site);
  void fence(const Site& site);
  // Not atomic: a race is an error.
  std::uint64_t plain_read(const std::uint64_t* word);
  void plain_write(std::uint64_t* word, std::uint64_t value);

  void futex_wait(const std::uint32_t& word, std::uint32_t seen);
  void futex_wake(const std::uint32_t& word);
  void ring();
  void sleep_until_rung();

  void reset();
  // Accesses of `bytes` at `other` are meant for `word` (two mappings of one object).
  void same_memory(const void* other, void* word, std::size_t bytes);
  // The 8 bytes at `word` are stored at once, although they are two words to readers.
  void stored_at_once(const void* word);
  void forget_places() { aliases_.clear(), at_once_.clear(); }

  // By number, in the order in which they were met. Weakening: that site's accesses are relaxed, its fence is none.
  [[nodiscard]] const std::vector<SeenSite>& sites() const noexcept { return sites_; }
  void weaken(int site) noexcept { weakened_ = site; }
  void trace(bool on) { tracing_ = on; }
  [[nodiscard]] const std::vector<std::string>& trace() const noexcept { return last_trace_; }  // of the execution before reset()

 private:
  using Clock = std::array<std::uint16_t, kMaxThreads>;
  static void join(Clock& clock, const Clock& other);
  struct Knowledge {
    Clock happened{};
    unsigned words = 0;                           // how many of the next are in use
    std::array<std::uint16_t, kMaxWords> oldest;  // by word: index into Word::stores
    Knowledge() {}
    Knowledge(const Knowledge& other) { *this = other; }
    Knowledge& operator=(const Knowledge& other);
    void join(const Knowledge& other);
  };
  struct Store {
    std::uint64_t value = 0;
    int thread = -1;
    std::uint16_t clock = 0;
    Clock cause{};
    Knowledge* message = nullptr;  // what an acquire of it learns
  };
  struct LoadSeen {
    unsigned thread, node;
    std::uint16_t clock;
  };
  struct Word {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    std::vector<Store> stores;
    std::vector<LoadSeen> loads;
    Clock plain_reads{};
    int writer = -1;
  };
  struct Thread {
    Knowledge known, to_acquire;
    Knowledge* released = nullptr;  // by the newest release fence
    bool has_to_acquire = false;
    Clock cause{};  // everything this thread's doings depend on, whatever the orders
    std::uint16_t clock = 0;
  };
  struct SeqCst {
    unsigned thread, word, store;
    std::uint16_t clock;
    bool is_store;
    std::bitset<kMaxSeqCst> later;  // all that the total order must put behind it
  };
  enum class Kind { wait_or_ring, wake_or_take };
  struct SystemCall {
    Kind kind;
    LoadSeen seen;
  };
  struct Sleeper {
    bool woken = false;
    Clock cause{};  // of the wake-up
  };
  // A kernel object with its lock: operations on it have one order.
  struct KernelObject {
    std::vector<SystemCall> calls;
    std::array<Clock, 2> cause{};  // by kind: two of one kind do not depend on each other
    Knowledge known;               // of those who woke
    std::vector<Sleeper*> sleepers;
    bool rung = false;
  };

  [[nodiscard]] static bool active() { return explorer().in_thread(); }
  [[nodiscard]] Thread& me() { return threads_[explorer().current()]; }
  Order order_of(const Site& site);
  unsigned site_index(const Site& site);
  void note(const Site& site, const Word& word, std::uint64_t value);
  unsigned word_at(const void* address, std::size_t bytes, std::uint64_t& ret_shift);
  Knowledge* keep(const Knowledge& known);
  void begin_event();
  [[nodiscard]] const unsigned* find(const void* address) const;
  unsigned add_word(std::byte* address, std::size_t bytes);

  unsigned choose_store(unsigned word, bool is_seq_cst, unsigned at_least, bool in_kernel);
  void read_store(unsigned word, unsigned store, Order order);
  void append(unsigned word, std::uint64_t value, Order order, bool is_update);
  using SeqCstSet = std::bitset<kMaxSeqCst>;
  // Where a seq_cst access of this thread would stand. False: it would close a cycle.
  bool place_in_total_order(unsigned word, unsigned store, bool is_store, SeqCstSet& ret_before, SeqCstSet& ret_later) const;
  void add_to_total_order(unsigned word, unsigned store, bool is_store);
  void begin_call(KernelObject& object, Kind kind);
  void remember(void* word, std::size_t bytes);

  std::deque<Word> words_;  // the first words_in_use_ belong to this execution
  unsigned words_in_use_ = 0;
  struct Slot {
    const void* address = nullptr;
    unsigned word = 0, run = 0;
  };
  std::array<Slot, 8192> index_{};  // by hash of the address
  unsigned run_ = 1;
  std::array<Thread, kMaxThreads> threads_;
  std::deque<Knowledge> kept_;
  std::size_t kept_in_use_ = 0;
  std::vector<SeqCst> seq_cst_;
  KernelObject futex_, bell_;
  struct Undo {
    void* address;
    std::size_t bytes;
    std::uint64_t value;
  };
  std::vector<Undo> undo_;

  struct Alias {
    const std::byte* other;
    std::byte* word;
    std::size_t bytes;
  };
  std::vector<Alias> aliases_;
  std::vector<const void*> at_once_;
  std::vector<SeenSite> sites_;
  std::unordered_map<std::uint64_t, unsigned> site_numbers_;
  int weakened_ = -1;
  bool tracing_ = false;
  std::vector<std::string> trace_, last_trace_;
};

Memory& memory();

}  // namespace gradshm::test
