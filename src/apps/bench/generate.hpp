// SPDX-License-Identifier: Apache-2.0
// `trireme bench generate`: what a token of generated text costs at the end of a full context, with
// kept keys and values (model/decoder.hpp) and without; and what reading a prompt costs.
//
// The parameters are a deck's initial ones. All ranks measure at the same time (bench/race.hpp),
// each by itself.
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
  std::int64_t tokens = 0;  ///< that it computes
  double seconds = 0;

  [[nodiscard]] double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

struct GenerateBench {
  DType dtype = DType::f32;
  int ranks = 1, threads = 1;
  std::int64_t context = 0;
  std::vector<GenerateBenchRow> rows;
  /// How many times as fast a token is with kept keys and values; 0 where the device has none.
  double ratio = 0;
};

/// Collective. `texts`: how many grow together in one of the rows.
GenerateBench bench_generate(const model::GptShape& shape,
                             DType dtype,
                             device::Device& device,
                             comm::World& world,
                             std::int64_t texts,
                             int repetitions,
                             const ops::Options& options);

std::string generate_table(const GenerateBench& bench);
/// {"context": …, "ratio": …, "rows": [{"what": …, "tokens": …, "seconds": …}, …]}
std::string generate_json(const GenerateBench& bench);

}  // namespace trireme::bench
