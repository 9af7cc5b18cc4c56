#include "protocol/round.hpp"

#include <algorithm>
#include <cassert>

namespace gradshm::core {

void RoundMachine::admit(unsigned rank) {
  assert(!members_.contains(rank));
  members_.insert(rank);
  arrivals_[rank] = 0;
}

bool RoundMachine::arrive(unsigned rank, std::size_t bucket) {
  assert(members_.contains(rank));
  if (buckets_[bucket].arrived.contains(rank)) return false;
  buckets_[bucket].arrived.insert(rank);
  ++arrivals_[rank];
  return true;
}

bool RoundMachine::remove(unsigned rank) {
  if (!members_.contains(rank)) return false;
  if (committed_all(rank)) return true;
  members_.erase(rank);
  arrivals_[rank] = 0;
  for (BucketState& bucket : buckets_) bucket.arrived.erase(rank);
  // Without members nothing is reduced: whoever enters now starts from nothing.
  if (members_.empty())
    for (BucketState& bucket : buckets_) bucket.reduced.clear();
  return false;
}

bool RoundMachine::can_close() const noexcept {
  return !members_.empty() &&
         std::all_of(buckets_.begin(), buckets_.end(), [&](const BucketState& bucket) { return bucket.reduced == members_; });
}

void RoundMachine::close() {
  for (BucketState& bucket : buckets_) bucket.arrived.clear(), bucket.reduced.clear();
  members_.clear();
  arrivals_.fill(0);
  ++open_;
}

}  // namespace gradshm::core
