// SPDX-License-Identifier: Apache-2.0
// Chooses model.recompute for each block from a limit in bytes: the choice with the least work that
// fits. It only uses the plan of activations, so all ranks choose the same.
//
// `block` costs a second forward pass of the block, nearly a third of its work in a step; `gelu`
// costs one pass over memory. So as few blocks as possible get `block`, and as few as possible of
// the others `gelu`. The first blocks get them: backward reaches these last, when most reductions
// are in progress, and their activations would be retained longest.
//
// 1. The choice is [block, …, gelu, …, none, …], and never a single `block`: all blocks with
//    `block` share the memory of one, so a single one saves nothing.
// 2. A larger limit never gives more blocks with `block`, nor, for the same number of these, more
//    with `gelu`.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "model/shape.hpp"

namespace trireme::model {

/// The sizes for which activations and scratch are planned.
struct ActivationSizes {
  DType dtype = DType::f32;
  std::int64_t micro_sequences = 0;
  device::Kind kind = device::Kind::cpu;
};

struct RecomputeChoice {
  RecomputeKey recompute;  ///< one word, or one per block
  std::int64_t bytes = 0;  ///< of activations and scratch
  bool fits = false;       ///< false: `bytes` is the minimum
};

/// For at most `most_bytes` of activations and scratch, if possible. Ignores shape.recompute.
RecomputeChoice choose_recompute(const GptShape& shape,
                                 const ActivationSizes& sizes,
                                 std::int64_t most_bytes);

/// "none", "block x 4, gelu, none x 7". Requires: no limit.
std::string recompute_text(const RecomputeKey& recompute);

}  // namespace trireme::model
