// What the tests of this directory share: layouts in one line, workers that are all members of round 1, failures as values.
#pragma once

#include <doctest/doctest.h>
#include <gradshm/gradshm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/harness.hpp"

#if defined(__SANITIZE_THREAD__)
#define GRADSHM_TEST_TSAN 1
#else
#define GRADSHM_TEST_TSAN 0
#endif

namespace gradshm::test {

using namespace std::chrono_literals;
inline constexpr auto kLong = 120s;  // ends a hang; nothing is measured against it
inline constexpr std::int64_t kLongNs = 120'000'000'000;

inline gradshm_server_options_t server_options() { return gradshm_server_options_t{}; }
inline gradshm_server_options_t expecting(unsigned workers, std::uint64_t bucket_bytes = 0) {
  auto options = server_options();
  options.expect = workers, options.bucket_bytes = bucket_bytes;
  return options;
}

// Parameters "p0", "p1", ... of `numel` f32 each.
inline Layout floats(std::size_t parameters, std::int64_t numel = 4) {
  Layout layout;
  for (std::size_t i = 0; i < parameters; ++i) layout.add("p" + std::to_string(i), DType::f32, {numel});
  return layout;
}
inline constexpr std::uint64_t kOneEach = 1;  // bucket_bytes: every parameter is a bucket of its own

inline AttachOptions unadmitted(int rank = GRADSHM_RANK_ANY) { return {.rank = rank, .wait_for_admission = false}; }

// A server and workers of ranks 0 to n-1, all of one thread and all members of round 1.
struct Team {
  Team(const Layout& layout, unsigned size, std::uint64_t bucket_bytes = 0) : Team(layout, expecting(size, bucket_bytes)) {}
  Team(const Layout& layout, gradshm_server_options_t options) : server(options) {
    for (unsigned rank = 0; rank < options.expect; ++rank)
      workers.push_back(Worker::attach(server.name(), layout, unadmitted(static_cast<int>(rank))));
    for (Worker& worker : workers) REQUIRE(worker.wait_admitted(kLong) == 1);
  }
  Worker& operator[](std::size_t rank) { return workers[rank]; }

  ServerThread server;
  std::vector<Worker> workers;
};

inline void fill(const Worker& worker, std::size_t parameter, float value) {
  const auto slot = worker.slot<float>(parameter);
  std::fill(slot.begin(), slot.end(), value);
}
inline void fill_all(const Worker& worker, float value) {
  for (std::size_t i = 0; i < worker.size(); ++i) fill(worker, i, value);
}
inline bool all_are(const Handle& handle, std::size_t parameter, float value) {
  const auto result = handle.result<float>(parameter);
  return std::all_of(result.begin(), result.end(), [&](float element) { return element == value; });
}

inline Outcome wait_for(Worker& worker, std::uint64_t round = 0) { return worker.wait(round, kLong); }
inline Outcome commit(Worker& worker, const CommitOptions& options = {}) { return worker.commit(options).status(); }
inline void commit_and_wait(Worker& worker) {
  CHECK(commit(worker) == Outcome::ok);
  CHECK(wait_for(worker) == Outcome::ok);
}

// All ranks hand in rank+1 everywhere and see their exact sum. For servers with op sum.
inline void check_exact_round(std::vector<Worker*> workers) {
  float sum = 0;
  for (Worker* worker : workers) {
    const auto value = static_cast<float>(worker->rank() + 1);
    sum += value, fill_all(*worker, value);
    REQUIRE(commit(*worker) == Outcome::ok);
  }
  for (Worker* worker : workers) {
    REQUIRE(wait_for(*worker) == Outcome::ok);
    for (std::size_t i = 0; i < worker->size(); ++i) CHECK(all_are(*worker, i, sum));
  }
}

struct Failure {
  int code = 0;
  std::string sentence;
  [[nodiscard]] bool says(const std::string& part) const { return sentence.find(part) != std::string::npos; }
};

// What an action of the C++ API threw; code 0 if nothing.
template <class Action>
Failure failure_of(Action&& action) {
  try {
    action();
    return {};
  } catch (const Error& error) {
    return {error.code().value(), error.what()};
  }
}
// What a call of the C API answered.
inline Failure answer(int code) { return {code, gradshm_last_error()}; }

inline Failure attach_failure(const std::string& name, const Layout& layout, const AttachOptions& options = unadmitted()) {
  return failure_of([&] { static_cast<void>(Worker::attach(name, layout, options)); });
}

inline void run_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// Lets another thread get into the call that a test is about. Too short a nap only makes the test weaker, never red.
inline void nap() { std::this_thread::sleep_for(20ms); }

class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

// A server's log, for tests that must know how far it is.
class Log {
 public:
  void attach_to(gradshm_server_options_t& options) { options.log = &Log::take, options.log_context = this; }
  bool comes_to_say(const std::string& part) const {
    return eventually([&] {
      const std::lock_guard lock(mutex_);
      return text_.find(part) != std::string::npos;
    });
  }
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  static void take(void* self, int, const char* sentence) {
    auto* log = static_cast<Log*>(self);
    const std::lock_guard lock(log->mutex_);
    log->text_ += std::string(sentence) + "\n";
  }
  mutable std::mutex mutex_;
  std::string text_;
};

inline gradshm_server_options_t summing(unsigned expect, std::uint64_t bucket_bytes = 0) {
  auto options = expecting(expect, bucket_bytes);
  options.op = GRADSHM_SUM;
  return options;
}

}  // namespace gradshm::test
