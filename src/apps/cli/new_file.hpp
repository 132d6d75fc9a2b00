// SPDX-License-Identifier: Apache-2.0
// Writes the files named by --json and --output. An existing file is never overwritten.
#pragma once

#include <string>

namespace trireme::cli {

/// Throws UserError if the file exists. Call before work whose result would be lost. An empty path
/// means no file, "-" standard output.
void expect_new_file(const std::string& path);
/// Outputs the result of a verb: prints `text` and, unless `path` is empty, writes `json` to the
/// new file `path`. If `path` is "-", prints `json` instead of `text`.
void give_result(const std::string& text, const std::string& path, const std::string& json);

}  // namespace trireme::cli
