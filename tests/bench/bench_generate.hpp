// SPDX-License-Identifier: Apache-2.0
// `bench_steps generate DECK`: times a generated token at the end of a full context, with and without
// a cache of keys and values (model/decoder.hpp), and the reading of a prompt.
//
// The parameters are a deck's initial ones. All ranks measure independently at the same time
// (bench/race.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "model/config.hpp"
#include "ops/options.hpp"

#include "comm/control/world.hpp"

namespace trireme::bench {

struct GenerateBenchRow {
  std::string what;
  std::int64_t tokens = 0;  ///< computed per run
  double seconds = 0;

  [[nodiscard]] double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

struct GenerateBench {
  DType dtype = DType::f32;
  int ranks = 1, threads = 1;
  std::int64_t context = 0;
  std::vector<GenerateBenchRow> rows;
  /// Speedup of a token by the cache; 0 if the device has no cache.
  double ratio = 0;
};

/// Collective. `texts`: number of texts generated together in one of the rows.
GenerateBench bench_generate(const model::GptShape& shape,
                             DType dtype,
                             device::Device& device,
                             comm::World& world,
                             std::int64_t texts,
                             int repetitions,
                             const ops::Options& options);

std::string generate_table(const GenerateBench& bench);

}  // namespace trireme::bench
