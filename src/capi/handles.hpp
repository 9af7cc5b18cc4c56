// What the opaque types of the C ABI are.
#pragma once

#include <memory>

#include "client/handle.hpp"
#include "layout/manifest.hpp"

struct gradshm_layout {
  gradshm::core::Manifest manifest;
};

struct gradshm_handle {
  std::unique_ptr<gradshm::core::Handle> handle;
};
