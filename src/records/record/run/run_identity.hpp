// SPDX-License-Identifier: Apache-2.0
// What makes an HDF5 file a run file (run_file.hpp): the root attributes filetype and version. A
// trireme continues files of its own version only.
#pragma once

#include <string>

#include "h5/file.hpp"

namespace trireme::record {

/// What to do about a run file that cannot be continued: the end of a message.
inline constexpr const char* move_away =
    "move it away, and the run resumes with a new record from here";

void write_identity(const h5::File& file);

/// Throws UserError, naming what lies at `path` instead, unless it is a run file that may be
/// continued.
void expect_run_file(const std::string& path);

}  // namespace trireme::record
