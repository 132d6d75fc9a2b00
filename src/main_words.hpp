// SPDX-License-Identifier: Apache-2.0
// The words of the command line. Everything that knows CLI11 is behind read_words(): what the words
// asked for is plain data, and main.cpp does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/bench.hpp"

#include "comm/bench.hpp"

#include "train/text_sample.hpp"

#include "report/speed_table.hpp"

namespace trireme {

extern const char* const usage_text;

enum class Verb : std::uint8_t {
  none,
  usage,
  version,
  check,
  plan,
  verify,
  sample,
  speed,
  help,
  bench_reduce,
  bench_engine,
  bench_shards,
  bench_pool,
  bench_matmul,
  bench_ops
};

/// What the words asked for.
struct Request {
  Verb verb = Verb::none;
  std::string mistake;  ///< where there is no verb to do
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  int hosts = 1;
  std::string json;  ///< a new file, or empty
  std::int64_t steps = 3;
  std::string topic;
  std::string key;
  std::string run_directory;
  train::TextRequest text{.prompt = "int main", .tokens = 256, .temperature = 0.8, .seed = 1};
  report::SpeedRequest speed;
  std::string h5;                  ///< a new file, or empty
  std::optional<int> repetitions;  ///< of any bench, as the next two are without
  comm::BenchRequest reduce;
  device::PoolBenchRequest pool;
  std::string device = "cpu";  ///< of `bench pool`; or cuda
};

/// All verbs but the training of a deck, which has no word.
Request read_words(int argc, char** argv);

/// To standard output. Throws StorageError when nobody can read it there.
void print(const std::string& text);

}  // namespace trireme
