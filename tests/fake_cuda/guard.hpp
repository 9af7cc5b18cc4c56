// A fault of a kernel is the kernel's, not the process's.
#pragma once

#include <functional>

namespace gradshm::fake {

// Runs it on this thread. A segmentation fault inside becomes Refusal(illegal address); what it has taken until then is not given back.
void run_guarded(const std::function<void()>& body);

}  // namespace gradshm::fake
