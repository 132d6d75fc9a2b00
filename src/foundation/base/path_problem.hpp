// SPDX-License-Identifier: Apache-2.0
// Whether a path cannot be used by the user's mistake. The same system call fails for a name that
// was mistyped and for a machine without memory; only the first can be corrected by the user.
#pragma once

#include <string>

namespace trireme {

/// Whether what the user wrote, or the modes of what lies there, can be the reason: no such name,
/// another kind of file, not allowed, too long, links in a loop. `error` is an errno value. All
/// else (no memory, too many open files, a disk or a server that fails) is the machine's.
bool is_about_the_path(int error);

/// Throws StorageError for `call` ("open PATH") where the error is the machine's.
void expect_about_the_path(int error, const std::string& call);

}  // namespace trireme
