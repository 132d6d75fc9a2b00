// SPDX-License-Identifier: Apache-2.0
// Renames files that are in the way of a run's files, so that nothing is overwritten or removed.
#pragma once

#include <string>

namespace trireme::record {

/// Renames a file or directory to the first free `path`.`why`-N, N from 1, which is returned.
/// Throws StorageError.

std::string move_aside(const std::string& path, const char* why);

}  // namespace trireme::record
