// SPDX-License-Identifier: Apache-2.0
// The files that --json and --output name. An existing file is never overwritten.
#pragma once

#include <string>

namespace trireme::cli {

/// Throws UserError when the file exists: before work whose result would be lost. An empty path
/// means no file, and "-" standard output.
void expect_new_file(const std::string& path);
/// The two forms of a verb's result: prints `text`, and writes `json` to the new file `path` unless
/// that is empty; if `path` is "-", prints `json` instead of `text`.
void give_result(const std::string& text, const std::string& path, const std::string& json);

}  // namespace trireme::cli
