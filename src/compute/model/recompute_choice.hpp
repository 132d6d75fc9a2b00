// SPDX-License-Identifier: Apache-2.0
// From bytes to a word of model.recompute for each block: the least work that fits. Arithmetic on
// the plan of activations, the same wherever it is made.
//
// A block with `block` costs its forward pass once more, nearly a third of a step's work on it; one
// with `gelu` a pass over memory. So as few blocks as possible have `block`, and of the others as
// few as possible `gelu`. The first blocks have them: backward comes to these last, when most
// reductions are under way, and their activations would be kept longest.
//
// 1. The choice is [block, …, gelu, …, none, …], and never one block with `block`: the blocks that
//    have it share the memory of one, and forward leaves that of the last of them in place, so one
//    alone saves nothing.
// 2. More bytes never mean more of `block`, nor, with as many of these, more of `gelu`.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "model/shape.hpp"

namespace trireme::model {

/// What a model's activations and scratch are planned for.
struct ActivationSizes {
  DType dtype = DType::f32;
  std::int64_t micro_sequences = 0;
  device::Kind kind = device::Kind::cpu;
};

struct RecomputeChoice {
  RecomputeOfBlocks recompute;  ///< one word, or one for each block
  std::int64_t bytes = 0;       ///< of activations and scratch with it
  bool fits = false;            ///< false: these are the least
};

/// Of what a model of `shape` keeps and leases, at most `most_bytes`, whatever shape.recompute is.
RecomputeChoice choose_recompute(const GptShape& shape,
                                 const ActivationSizes& sizes,
                                 std::int64_t most_bytes);

/// "none", "block x 4, gelu, none x 7". Requires: no limit.
std::string recompute_text(const RecomputeOfBlocks& recompute);

}  // namespace trireme::model
