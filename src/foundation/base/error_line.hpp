// SPDX-License-Identifier: Apache-2.0
// Writes to standard error without a Log: why the process ends, and failures in destructors.
//
// Control characters, which file names and settings may contain, are written as \\xNN. A line is
// written with one call. From glibc 2.37 on, std::fprintf writes 128 bytes at a time to an
// unbuffered stream, and a launcher could mix lines of other ranks in between.
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
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is nowhere to report it
  }
}

}  // namespace trireme
