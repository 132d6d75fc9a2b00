// SPDX-License-Identifier: Apache-2.0
// The program: a command line in, an exit code out. Every mistake and failure ends in verdict_of():
// its lines go to standard error, its code to the shell.
#include <csignal>
#include <exception>

#include <fcntl.h>

#include "base/error.hpp"
#include "base/error_line.hpp"

#include "cli/verb.hpp"

namespace {

/// Undoes what a parent process may have left: a closed standard stream, whose number the next file
/// that is opened would get, so that messages would be written into it; and an ignored SIGCHLD,
/// with which the results of commands are lost.
void reset_inherited() {
  for (int stream = 0; stream <= 2; ++stream)
    if (fcntl(stream, F_GETFD) < 0)
      static_cast<void>(open("/dev/null", O_RDWR));
  std::signal(SIGCHLD, SIG_DFL);
}

}  // namespace

int main(int argc, char** argv) {
  reset_inherited();
  try {
    return static_cast<int>(trireme::cli::run(argc, argv));
  } catch (const std::exception& problem) {
    const trireme::Verdict verdict = trireme::verdict_of(problem);
    for (const std::string& line : verdict.lines) trireme::error_line("{}", line);
    return static_cast<int>(verdict.code);
  }
}
