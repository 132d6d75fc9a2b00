// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce|engine|shards|pool|matmul|ops`: one part alone, as a table on standard
// output and, where asked for, as JSON in a new file.
#pragma once

#include "base/error.hpp"

#include "main_words.hpp"

namespace trireme {

/// `reduce`, `matmul` and `ops` start MPI; they are collective.
ExitCode bench_command(int& argc, char**& argv, const Request& request);

}  // namespace trireme
