// SPDX-License-Identifier: Apache-2.0
// `trireme bench …`: one part alone, as a table on standard output and, where asked for, as JSON in
// a new file. `reduce`, `engine`, `matmul` and `ops` start MPI; they are collective.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_bench_reduce(CLI::App& command);
Action declare_bench_engine(CLI::App& command);
Action declare_bench_shards(CLI::App& command);
Action declare_bench_pool(CLI::App& command);
Action declare_bench_matmul(CLI::App& command);
Action declare_bench_ops(CLI::App& command);
Action declare_bench_generate(CLI::App& command);

}  // namespace trireme::cli
