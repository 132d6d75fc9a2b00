// SPDX-License-Identifier: Apache-2.0
// The file that --json and its like name: nothing is overwritten.
#pragma once

#include <string>

namespace trireme::cli {

/// Throws UserError when the file exists: before work whose result would be lost. An empty path
/// means no file.
void expect_new_file(const std::string& path);
/// Throws UserError when the file exists, StorageError when it cannot be written.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace trireme::cli
