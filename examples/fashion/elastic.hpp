// Training while workers come and go. A newcomer takes part from some round R on; the round cannot close without it, so it has all the
// time it needs to load the state after R - 1 from the file that the others keep. Who was evicted comes back as a newcomer.
#pragma once

#include "idx.hpp"
#include "options.hpp"

namespace fashion {

// Until the last round, or --leave-after-round; then prints one line of JSON. Throws what went wrong, a record that contradicts itself too.
void train_elastically(const Dataset& data, const Dataset& test, const Options& options);

}  // namespace fashion
