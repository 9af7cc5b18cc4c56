// Builds without the CUDA toolkit.
#include "cuda/devices.hpp"

namespace gradshm::core::cuda {

Survey survey() {
  Survey out;
  out.missing = "this build has no GPU code: build where nvcc and cuda.h of CUDA 12 or newer are, with meson's -Dcuda=enabled";
  return out;
}

}  // namespace gradshm::core::cuda
