// SPDX-License-Identifier: Apache-2.0
// What a process prints on standard error outside of its Log: why it ends, and what a destructor
// could not do.
//
// Control characters, which file names and settings may hold, are written as \\xNN. A line goes out
// in one piece. From glibc 2.37 on, std::fprintf hands an unbuffered stream 128 bytes at a time,
// and between two pieces a launcher puts the lines of other ranks.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

namespace trireme {

/// Writes a line; `text` has no newline. Never throws.
template <class... Args>
void error_line(fmt::format_string<Args...> text, Args&&... args) noexcept {
  try {
    const std::string line = for_terminal(fmt::format(text, std::forward<Args>(args)...)) + '\n';
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (...) {  // NOLINT(bugprone-empty-catch): no place is left to report it
  }
}

}  // namespace trireme
