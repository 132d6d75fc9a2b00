// SPDX-License-Identifier: Apache-2.0
// The program: a command line in, an exit code out. Every mistake and failure ends in verdict_of():
// its lines go to standard error, its code to the shell.
#include <exception>

#include "base/error.hpp"
#include "base/error_line.hpp"

#include "cli/verb.hpp"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(trireme::cli::run(argc, argv));
  } catch (const std::exception& problem) {
    const trireme::Verdict verdict = trireme::verdict_of(problem);
    for (const std::string& line : verdict.lines) trireme::error_line("{}", line);
    return static_cast<int>(verdict.code);
  }
}
