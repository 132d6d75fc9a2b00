// SPDX-License-Identifier: Apache-2.0
// `trireme bench ops`: every operation of a step alone, at the sizes of a deck.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.hpp"

namespace trireme {

class OpsBenchVerb {
 public:
  void describe(CLI::App& bench);
  [[nodiscard]] bool asked() const { return verb_ != nullptr && verb_->parsed(); }
  /// Starts MPI; collective.
  ExitCode run(int& argc, char**& argv) const;

 private:
  CLI::App* verb_ = nullptr;
  std::string deck_ = "input/gpt2-124m.yaml";
  std::vector<std::string> overrides_;
  std::string json_;
  int repetitions_ = 7;
};

}  // namespace trireme
