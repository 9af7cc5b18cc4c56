// Knows all handles of the process, so that a forked child can be told that it has none.
#pragma once

namespace gradshm::core {

class Handle;

void register_handle(Handle* handle);
void unregister_handle(Handle* handle) noexcept;
// Changes in every forked child.
[[nodiscard]] unsigned fork_epoch() noexcept;

}  // namespace gradshm::core
