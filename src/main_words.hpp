// SPDX-License-Identifier: Apache-2.0
// The words of the command line: the verbs but `bench` (main_bench.hpp), and what they take.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "train/text_sample.hpp"

namespace trireme {

extern const char* const usage;

/// What the words asked for.
struct Request {
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  std::string json;
  std::int64_t steps = 3;
  std::string topic;
  std::string key;
  std::string run_directory;
  train::TextRequest text{.prompt = "int main", .tokens = 256, .temperature = 0.8, .seed = 1};
};

/// Adds the verbs; those that need no MPI do their work while `app` parses. `request` outlives it.
/// Returns `verify`, which is the caller's to run.
CLI::App* add_verbs(CLI::App& app, Request& request);

/// To standard output. Throws StorageError when nobody can read it there.
void print(const std::string& text);

}  // namespace trireme
