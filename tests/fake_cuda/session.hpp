// What the processes of one test share: which allocation is how large, on which device, and who holds it. A process that dies, however it
// dies, holds nothing any more; memory that others still hold stays in use.
#pragma once

#include <cstdint>
#include <mutex>

namespace gradshm::fake {

class Session {
 public:
  [[nodiscard]] static Session& get();
  // Throws Refusal(out of memory). Returns the allocation's number, which no other allocation ever has.
  [[nodiscard]] std::uint64_t create(int device, std::uint64_t bytes);
  // An allocation of another process, which may have died since.
  void hold(std::uint64_t id, int device, std::uint64_t bytes);
  void drop(std::uint64_t id);
  [[nodiscard]] bool others_hold(std::uint64_t id);
  [[nodiscard]] std::uint64_t used_bytes(int device);

 private:
  struct State;
  class Locked;
  Session();
  void take_slot();
  void forget_the_dead();
  void add_holder(std::uint64_t id, int device, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t used(int device) const;
  std::mutex mutex_;
  int fd_ = -1, slot_ = -1;
  State* state_ = nullptr;
};

}  // namespace gradshm::fake
