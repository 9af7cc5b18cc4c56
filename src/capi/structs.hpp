// Sized structs: the caller's may be shorter or longer than ours.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "base/status.hpp"

namespace gradshm::core {

// Our copy of a caller's struct; what he does not have is zero. Throws Error(invalid) where size was not set.
template <class Struct>
Struct read_struct(const Struct* given, const char* name) {
  Struct ours{};
  if (given == nullptr) return ours;
  if (given->size < sizeof(std::size_t)) throw Error(Status::invalid, std::string(name) + ".size is not set: it takes sizeof(" + name + ")");
  std::memcpy(&ours, given, std::min(given->size, sizeof(Struct)));
  return ours;
}

template <class Struct>
void write_struct(Struct* given, Struct ours, const char* name) {
  if (given == nullptr) throw Error(Status::invalid, std::string(name) + " is NULL");
  if (given->size < sizeof(std::size_t)) throw Error(Status::invalid, std::string(name) + ".size is not set: it takes sizeof(" + name + ")");
  ours.size = given->size;
  std::memcpy(given, &ours, std::min(given->size, sizeof(Struct)));
}

template <class Pointer>
void require(const Pointer* pointer, const char* name) {
  if (pointer == nullptr) throw Error(Status::invalid, std::string(name) + " is NULL");
}

}  // namespace gradshm::core
