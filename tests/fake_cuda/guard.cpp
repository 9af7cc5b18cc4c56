#include "fake_cuda/guard.hpp"

#include <csetjmp>
#include <csignal>
#include <mutex>

#include "fake_cuda/calls.hpp"
#include "fake_cuda/counts.hpp"

namespace gradshm::fake {
namespace {

// Where this thread goes on after a fault; the model makes it safe to read in a signal handler.
__attribute__((tls_model("initial-exec"))) thread_local sigjmp_buf* landing = nullptr;
struct sigaction before {};

// A fault anywhere else is for whoever was here before: the instruction runs again and faults again.
void on_fault(int signal, siginfo_t*, void*) {
  if (landing != nullptr) siglongjmp(*landing, 1);
  sigaction(signal, &before, nullptr);
}

// doctest installs its own handler for every case and puts the old one back.
void install() {
  static auto* const mutex = new std::mutex;
  const std::lock_guard guard(*mutex);
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault) return;
  before = now;
  now = {};
  now.sa_sigaction = on_fault;
  now.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &now, nullptr);
}

struct Landing {
  explicit Landing(sigjmp_buf* place) { landing = place; }
  ~Landing() { landing = nullptr; }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;
};

}  // namespace

void run_guarded(const std::function<void()>& body) {
  install();
  sigjmp_buf place;
  if (sigsetjmp(place, 1) != 0) {
    landing = nullptr;
    counts().faults.add();
    throw Refusal{CUDA_ERROR_ILLEGAL_ADDRESS};
  }
  const Landing here(&place);
  body();
}

}  // namespace gradshm::fake
