// The one matrix product that forward and backward pass are made of.
#pragma once

#include <cstddef>

namespace fashion {

// Element (i, l) of a lies at data[i * row + l * column]: a transpose is a matter of strides.
struct Strided {
  const float* data;
  std::size_t row, column;
};

// c[m, n] += a[m, k] * b[k, n]; b and c are dense and row-major, c overlaps neither a nor b.
// Every element of c is summed in the order of k, so the bits depend neither on the instruction set nor on m and n.
void multiply_add(std::size_t m, std::size_t n, std::size_t k, Strided a, const float* b, float* c);

}  // namespace fashion
