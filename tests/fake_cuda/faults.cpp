// Pauses and injected errors.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/config.hpp"
#include "fake_cuda/context.hpp"

namespace gradshm::fake {
namespace {

std::atomic<pid_t> initialised_in{0};
thread_local int host_functions_deep = 0;

std::uint64_t next_random() {
  static std::atomic<std::uint64_t> drawn{0};
  // order: relaxed, only the number counts.
  std::uint64_t mixed = config().seed + 0x9e3779b97f4a7c15 * (1 + drawn.fetch_add(1, std::memory_order_relaxed));
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

CUresult injected(const char* name) {
  static std::mutex* const lock = new std::mutex;
  static auto* const seen = new std::map<std::string, std::uint64_t>;
  if (config().errors.empty()) return CUDA_SUCCESS;
  const std::lock_guard guard(*lock);
  const std::uint64_t nth = ++(*seen)[name];
  for (const InjectedError& error : config().errors)
    if (error.name == name && (error.nth == 0 || error.nth == nth)) return static_cast<CUresult>(error.code);
  return CUDA_SUCCESS;
}

void check_initialised() {
  // order: acquire, pairs with mark_initialised.
  const pid_t process = initialised_in.load(std::memory_order_acquire);
  require(process == getpid(), CUDA_ERROR_NOT_INITIALIZED);
}

}  // namespace

void mark_initialised() {
  pid_t nobody = 0;
  // order: release, pairs with check_initialised; a forked child of an initialised process stays without a driver.
  if (!initialised_in.compare_exchange_strong(nobody, getpid(), std::memory_order_release, std::memory_order_relaxed))
    require(nobody == getpid(), CUDA_ERROR_NOT_INITIALIZED);
}

void pause_at_random() {
  if (config().jitter_us == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(next_random() % (config().jitter_us + 1)));
}

void enter(const char* name, Needs needs) {
  require(host_functions_deep == 0, CUDA_ERROR_NOT_PERMITTED);
  if (needs == Needs::init) check_initialised();
  pause_at_random();
  const CUresult code = injected(name);
  if (code != CUDA_SUCCESS && is_sticky(code)) stick_to_current(code);
  require(code == CUDA_SUCCESS, code);
}

void meet_operation(const char* kind) {
  const CUresult code = injected(kind);
  require(code == CUDA_SUCCESS, code);
}

bool is_sticky(CUresult code) { return code == 700 || code == 702 || code == 709 || code == 710 || (code >= 714 && code <= 719); }

InHostFunction::InHostFunction() { ++host_functions_deep; }
InHostFunction::~InHostFunction() { --host_functions_deep; }

}  // namespace gradshm::fake
