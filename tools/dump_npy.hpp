// NumPy's file format, version 1.0. Source: numpy.org, "numpy.lib.format": magic, version, length of the header, a Python literal.
#pragma once

#include <string>

#include "dump.hpp"

namespace gradshm::tools {

// Header and values. bf16 has no NumPy type and goes out as its bit patterns, <u2.
[[nodiscard]] std::string npy_of(const Dump& dump);

// The whole file or nothing: written under another name beside it, then renamed. Throws core::Error; whatever is no regular file
// is refused, because the rename would replace it.
void write_file(const std::string& path, const std::string& content);

}  // namespace gradshm::tools
