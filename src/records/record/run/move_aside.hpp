// SPDX-License-Identifier: Apache-2.0
// What is in the way of a run's files is neither overwritten nor removed: it gets another name.
#pragma once

#include <string>

namespace trireme::record {

/// Renames a file or directory to the first free `path`.`why`-N, N from 1, which is returned.
/// Throws StorageError.

std::string move_aside(const std::string& path, const char* why);

}  // namespace trireme::record
