// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce|engine|shards|pool|matmul|ops`: one part alone, as a table on standard
// output and, where asked for, as JSON in a new file.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

#include "base/error.hpp"

namespace trireme {

/// The verb with its sub-verbs. It lives as long as the words that CLI11 fills in.
class BenchVerb {
 public:
  explicit BenchVerb(CLI::App& app);
  ~BenchVerb();
  BenchVerb(const BenchVerb&) = delete;
  BenchVerb& operator=(const BenchVerb&) = delete;

  [[nodiscard]] bool asked() const;
  /// All but `shards` and `pool` start MPI; they are collective.
  ExitCode run(int& argc, char**& argv);

 private:
  struct Words;
  std::unique_ptr<Words> words_;
};

}  // namespace trireme
