// The objects that exist once the layout is known.
#pragma once

#include <cstdint>

#include "daemon/options.hpp"
#include "layout/layout.hpp"
#include "memory/control.hpp"
#include "memory/result.hpp"
#include "memory/slot.hpp"

namespace gradshm::core {

struct Arena {
  // Checks that (1 + expected workers) times the layout is there before it takes anything; those that bring their slots need none. Throws Error(no_space | bad_layout).
  Arena(Layout layout, const ServerOptions& options, std::uint64_t incarnation, unsigned reducer_threads, unsigned expected_workers);

  Layout layout;
  SlotShape shape;
  MemFd layout_file;
  ControlObject control;
  ResultObject result;
};

}  // namespace gradshm::core
