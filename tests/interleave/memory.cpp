#include "interleave/memory.hpp"

#include <algorithm>
#include <cstring>

namespace gradshm::test {
namespace {

std::uint64_t read_raw(const void* word, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, word, bytes);  // little-endian, as everything here
  return value;
}
void write_raw(void* word, std::size_t bytes, std::uint64_t value) { std::memcpy(word, &value, bytes); }
std::uint64_t cut(std::uint64_t value, std::size_t bytes) { return bytes == 4 ? value & 0xffffffff : value; }
std::size_t slot_of(const void* address) { return (reinterpret_cast<std::uintptr_t>(address) >> 2) * 0x9e3779b97f4a7c15u >> 51; }

}  // namespace

Memory& memory() {
  static Memory& instance = []() -> Memory& {
    const OwnMemory own;  // the first access may be that of code under test
    static Memory made;
    return made;
  }();
  return instance;
}

void Memory::join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

Memory::Knowledge& Memory::Knowledge::operator=(const Knowledge& other) {
  happened = other.happened, words = other.words;
  std::copy_n(other.oldest.begin(), words, oldest.begin());
  return *this;
}

void Memory::Knowledge::join(const Knowledge& other) {
  Memory::join(happened, other.happened);
  if (words < other.words) std::fill(oldest.begin() + words, oldest.begin() + other.words, 0), words = other.words;
  for (unsigned i = 0; i < other.words; ++i) oldest[i] = std::max(oldest[i], other.oldest[i]);
}

Memory::Knowledge* Memory::keep(const Knowledge& known) {
  if (kept_in_use_ == kept_.size()) kept_.emplace_back();
  kept_[kept_in_use_] = known;
  return &kept_[kept_in_use_++];
}

// --- words -----------------------------------------------------------------------------------------------------------------------------

void Memory::same_memory(const void* other, void* word, std::size_t bytes) {
  aliases_.push_back({static_cast<const std::byte*>(other), static_cast<std::byte*>(word), bytes});
}
void Memory::stored_at_once(const void* word) { at_once_.push_back(word); }

const unsigned* Memory::find(const void* address) const {
  for (std::size_t i = slot_of(address);; i = (i + 1) % index_.size()) {
    if (index_[i].run != run_) return nullptr;
    if (index_[i].address == address) return &index_[i].word;
  }
}

unsigned Memory::add_word(std::byte* address, std::size_t bytes) {
  if (words_in_use_ == kMaxWords) misuse("too many words");
  if (words_in_use_ == words_.size()) words_.emplace_back();
  std::size_t i = slot_of(address);
  while (index_[i].run == run_) i = (i + 1) % index_.size();
  index_[i] = {address, words_in_use_, run_};
  Word& word = words_[words_in_use_];
  word.address = address, word.bytes = bytes, word.writer = -1, word.plain_reads = {};
  word.loads.clear(), word.stores.clear();
  word.stores.push_back({read_raw(address, bytes), -1, 0, {}, nullptr});
  return words_in_use_++;
}

unsigned Memory::word_at(const void* accessed, std::size_t bytes, std::uint64_t& ret_shift) {
  auto* address = static_cast<std::byte*>(const_cast<void*>(accessed));
  for (const Alias& alias : aliases_)
    if (address >= alias.other && address < alias.other + alias.bytes) address = alias.word + (address - alias.other);
  ret_shift = 0;
  const std::size_t in_pair = reinterpret_cast<std::uintptr_t>(address) % 8;
  if (bytes == 4 && std::find(at_once_.begin(), at_once_.end(), address - in_pair) != at_once_.end())
    address -= in_pair, ret_shift = in_pair * 8, bytes = 8;
  const unsigned* found = find(address);
  const unsigned number = found != nullptr ? *found : add_word(address, bytes);
  if (words_[number].bytes != bytes) misuse("a word is accessed in two sizes: see stored_at_once");
  return number;
}

void Memory::remember(void* word, std::size_t bytes) {
  const OwnMemory own;
  undo_.push_back({word, bytes, read_raw(word, bytes)});
}

void Memory::reset() {
  for (unsigned i = 0; i < words_in_use_; ++i) write_raw(words_[i].address, words_[i].bytes, words_[i].stores.front().value);
  for (; !undo_.empty(); undo_.pop_back()) write_raw(undo_.back().address, undo_.back().bytes, undo_.back().value);
  words_in_use_ = 0, kept_in_use_ = 0, ++run_;
  seq_cst_.clear();
  last_trace_.swap(trace_), trace_.clear();
  for (Thread& thread : threads_) {
    thread.known.words = thread.to_acquire.words = 0;
    thread.known.happened = thread.to_acquire.happened = thread.cause = {};
    thread.released = nullptr, thread.has_to_acquire = false, thread.clock = 0;
  }
  for (KernelObject* object : {&futex_, &bell_}) {
    object->calls.clear(), object->sleepers.clear(), object->cause = {}, object->rung = false;
    object->known.words = 0, object->known.happened = {};
  }
}

// --- sites -----------------------------------------------------------------------------------------------------------------------------

unsigned Memory::site_index(const Site& site) {
  const auto key = reinterpret_cast<std::uintptr_t>(site.place.file) * 31 + reinterpret_cast<std::uintptr_t>(site.what) * 7 + site.place.line;
  if (const auto found = site_numbers_.find(key); found != site_numbers_.end()) return found->second;
  std::string file = site.place.file;
  if (const std::size_t at = file.rfind("src/"); at != std::string::npos) file = file.substr(at + 4);
  const auto same = [&](const SeenSite& seen) { return seen.file == file && seen.line == site.place.line && seen.what == site.what; };
  auto number = static_cast<unsigned>(std::find_if(sites_.begin(), sites_.end(), same) - sites_.begin());
  if (number == sites_.size()) sites_.push_back({file, site.place.line, site.what, site.order});
  return site_numbers_[key] = number;
}

Order Memory::order_of(const Site& site) {
  if (site.order == Order::relaxed) return site.order;
  return static_cast<int>(site_index(site)) == weakened_ ? Order::relaxed : site.order;
}

void Memory::note(const Site& site, const Word& word, std::uint64_t value) {
  if (!tracing_) return;
  const std::string file = site.place.file;
  trace_.push_back("thread " + std::to_string(explorer().current()) + "  " + file.substr(file.rfind('/') + 1) + ":" +
                   std::to_string(site.place.line) + " " + site.what + " " + std::to_string(value) +
                   (value == word.stores.back().value ? "" : "  (newest: " + std::to_string(word.stores.back().value) + ")"));
}

// --- accesses --------------------------------------------------------------------------------------------------------------------------

void Memory::begin_event() {
  Thread& self = me();
  self.known.happened[explorer().current()] = self.cause[explorer().current()] = ++self.clock;
}

unsigned Memory::choose_store(unsigned number, bool is_seq_cst, unsigned at_least, bool in_kernel) {
  Word& word = words_[number];
  Thread& self = me();
  const unsigned thread = explorer().current();
  if (word.writer == static_cast<int>(thread)) return static_cast<unsigned>(word.stores.size() - 1);
  if (number < self.known.words) at_least = std::max<unsigned>(at_least, self.known.oldest[number]);
  const std::uint16_t clock = self.clock;
  while (true) {
    std::array<unsigned, 256> options;
    unsigned count = 0;
    for (auto store = static_cast<unsigned>(word.stores.size()); store-- > at_least && count < options.size();) {
      SeqCstSet before, later;
      if (in_kernel && word.stores[store].cause[thread] >= clock) continue;  // it was made after this call had begun
      if (!is_seq_cst || place_in_total_order(number, store, false, before, later)) options[count++] = store;
    }
    at_least = static_cast<unsigned>(word.stores.size());
    if (count > 0) {
      unsigned node = 0;
      const int chosen = explorer().choose(count, node);
      word.loads.push_back({thread, node, clock});
      if (chosen != Explorer::kWait) return options[static_cast<unsigned>(chosen)];
    }
    explorer().block([&word, at_least] { return word.stores.size() > at_least; }, false);
  }
}

void Memory::read_store(unsigned number, unsigned chosen, Order order) {
  Thread& self = me();
  const Store& store = words_[number].stores[chosen];
  join(self.cause, store.cause);
  if (store.message != nullptr && order != Order::relaxed) self.known.join(*store.message);
  if (store.message != nullptr && order == Order::relaxed) {
    if (self.has_to_acquire) self.to_acquire.join(*store.message);
    else self.to_acquire = *store.message, self.has_to_acquire = true;
  }
  if (number >= self.known.words)
    std::fill(self.known.oldest.begin() + self.known.words, self.known.oldest.begin() + number + 1, 0), self.known.words = number + 1;
  self.known.oldest[number] = std::max<std::uint16_t>(self.known.oldest[number], static_cast<std::uint16_t>(chosen));
}

std::uint64_t Memory::load(const void* address, std::size_t bytes, const Site& site) {
  if (!active()) return read_raw(address, bytes);
  const OwnMemory own;
  std::uint64_t shift = 0;
  const unsigned number = word_at(address, bytes, shift);
  const Order order = order_of(site);
  begin_event();
  const unsigned chosen = choose_store(number, order == Order::seq_cst, 0, false);
  if (order == Order::seq_cst) add_to_total_order(number, chosen, false);
  read_store(number, chosen, order);
  const std::uint64_t value = words_[number].stores[chosen].value >> shift;
  note(site, words_[number], value);
  return cut(value, bytes);
}

void Memory::append(unsigned number, std::uint64_t value, Order order, bool is_update) {
  Word& word = words_[number];
  Thread& self = me();
  const unsigned thread = explorer().current();
  if (word.writer >= 0 && word.writer != static_cast<int>(thread)) misuse("a word has two writing threads");
  word.writer = static_cast<int>(thread);
  for (unsigned i = 0; i < kMaxThreads; ++i)
    if (i != thread && word.plain_reads[i] > self.known.happened[i]) explorer().fail("data race: bytes change while thread " + std::to_string(i) + " reads them");
  for (const LoadSeen& seen : word.loads)
    if (seen.thread != thread && self.cause[seen.thread] < seen.clock) explorer().allow_wait(seen.node);
  Knowledge* const earlier = is_update ? word.stores.back().message : nullptr;
  const auto store = static_cast<unsigned>(word.stores.size());
  word.stores.push_back({value, static_cast<int>(thread), self.clock, self.cause, nullptr});
  read_store(number, store, Order::relaxed);
  if (order == Order::release || order == Order::seq_cst) word.stores[store].message = keep(self.known);
  else word.stores[store].message = self.released;
  if (earlier != nullptr && word.stores[store].message != nullptr) word.stores[store].message = keep(*word.stores[store].message), word.stores[store].message->join(*earlier);
  if (earlier != nullptr && word.stores[store].message == nullptr) word.stores[store].message = earlier;
  write_raw(word.address, word.bytes, value);
}

void Memory::store(void* address, std::size_t bytes, std::uint64_t value, const Site& site) {
  if (!active()) return remember(address, bytes), write_raw(address, bytes, value);
  const OwnMemory own;
  std::uint64_t shift = 0;
  const unsigned number = word_at(address, bytes, shift);
  if (words_[number].bytes != bytes) misuse("half a word is stored");
  const Order order = order_of(site);
  begin_event();
  if (order == Order::seq_cst) add_to_total_order(number, static_cast<unsigned>(words_[number].stores.size()), true);
  append(number, value, order, false);
  note(site, words_[number], value);
}

std::uint64_t Memory::add(void* address, std::size_t bytes, std::uint64_t value, const Site& site) {
  if (!active()) {
    const std::uint64_t before = read_raw(address, bytes);
    return remember(address, bytes), write_raw(address, bytes, cut(before + value, bytes)), before;
  }
  const OwnMemory own;
  std::uint64_t shift = 0;
  const unsigned number = word_at(address, bytes, shift);
  const Order order = order_of(site);
  begin_event();
  const auto newest = static_cast<unsigned>(words_[number].stores.size() - 1);
  const std::uint64_t before = words_[number].stores[newest].value;
  if (order == Order::seq_cst) add_to_total_order(number, newest + 1, true);
  read_store(number, newest, order);
  append(number, cut(before + value, bytes), order, true);
  note(site, words_[number], before + value);
  return before;
}

void Memory::fence(const Site& site) {
  if (!active()) return;
  const OwnMemory own;
  const Order order = order_of(site);
  begin_event();
  if (order == Order::acquire && me().has_to_acquire) me().known.join(me().to_acquire);
  if (order == Order::release) me().released = keep(me().known);
}

std::uint64_t Memory::plain_read(const std::uint64_t* address) {
  if (!active()) return *address;
  const OwnMemory own;
  std::uint64_t shift = 0;
  Word& word = words_[word_at(address, sizeof *address, shift)];
  begin_event();
  const Store& newest = word.stores.back();
  if (newest.thread >= 0 && newest.clock > me().known.happened[static_cast<unsigned>(newest.thread)])
    explorer().fail("data race: thread " + std::to_string(explorer().current()) + " reads bytes while thread " + std::to_string(newest.thread) + " changes them");
  word.plain_reads[explorer().current()] = me().clock;
  return newest.value;
}

void Memory::plain_write(std::uint64_t* address, std::uint64_t value) {
  if (!active()) return remember(address, sizeof *address), write_raw(address, sizeof *address, value);
  const OwnMemory own;
  std::uint64_t shift = 0;
  const unsigned number = word_at(address, sizeof *address, shift);
  begin_event();
  append(number, value, Order::relaxed, false);
  words_[number].stores.back().message = nullptr;
}

// --- the total order of seq_cst accesses -----------------------------------------------------------------------------------------------

bool Memory::place_in_total_order(unsigned word, unsigned store, bool is_store, SeqCstSet& ret_before, SeqCstSet& ret_later) const {
  const unsigned thread = explorer().current();
  const Clock& happened = threads_[thread].known.happened;
  for (std::size_t i = 0; i < seq_cst_.size(); ++i) {
    const SeqCst& other = seq_cst_[i];
    const bool same_word = other.word == word;
    // Strongly happens before: sequenced, or with something sequenced after `other` in between. Else by coherence.
    const bool strongly = other.thread == thread || happened[other.thread] > other.clock;
    if (strongly || (same_word && (other.store < store || (other.store == store && other.is_store && !is_store)))) ret_before.set(i);
    if (same_word && store < other.store) ret_later.set(i), ret_later |= other.later;
  }
  return (ret_before & ret_later).none();
}

void Memory::add_to_total_order(unsigned word, unsigned store, bool is_store) {
  if (seq_cst_.size() == kMaxSeqCst) misuse("too many seq_cst accesses");
  SeqCstSet before, later;
  place_in_total_order(word, store, is_store, before, later);
  SeqCstSet added = later;
  added.set(seq_cst_.size());
  for (std::size_t i = 0; i < seq_cst_.size(); ++i)
    if (before[i] || (seq_cst_[i].later & before).any()) seq_cst_[i].later |= added;
  seq_cst_.push_back({explorer().current(), word, store, me().clock, is_store, later});
}

}  // namespace gradshm::test
