// SPDX-License-Identifier: Apache-2.0
// Looks at a run file in a process of its own, before this one opens it: on a damaged file HDF5
// itself may crash (1.10.8 does so on some flipped bits in attributes) or never come to an end.
//
// That process is this program, started anew: `trireme try-record PATH [STEP]`. It reads all of the
// file; with STEP it also continues it, with writes that stay in memory. What it found comes back
// through a pipe. When it crashes over the file, the file is damaged.
//
// 1. It is spawned, not forked: no memory, thread or connection of MPI is copied. It does not use
//    MPI, changes nothing on the disk, and ends when this process does.
// 2. Only a crash counts, or computing for much longer than reading can take. Where it cannot
//    start, is killed, lacks memory, or a system call in it fails, the file is examined here.
// 3. It sets memory aside before it begins, because HDF5 1.10.8 also crashes for lack of it.
// 4. Without use_trial_program() the file is examined here: a program that does not have the verb
//    must not be started.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"

namespace trireme::record {

inline constexpr const char* trial_verb = "try-record";

struct RunFindings {
  std::string damage;                     ///< as RunFile::damage(); "": none
  std::optional<std::int64_t> last_step;  ///< as RunFile::last_step()
  std::int64_t last_checkpoint = 0;       ///< as RunFile::last_checkpoint()
};

/// `step`: the file is to be continued after it. Throws StorageError when the system refuses.
RunFindings look_at_run_file(const std::string& path,
                             std::optional<std::int64_t> step = std::nullopt);

/// From now on look_at_run_file() starts `program`. Before threads exist.
void use_trial_program(std::string program);

/// What the program does for the verb. `arguments` follow it.
ExitCode run_trial(std::span<const char* const> arguments);

}  // namespace trireme::record
