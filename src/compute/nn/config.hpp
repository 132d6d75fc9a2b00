// SPDX-License-Identifier: Apache-2.0
// What can be chosen about layers: activation functions, norms of queries and keys, and which
// activations backward recomputes, with the same bits, instead of retaining them.
#pragma once

#include <cstdint>

#include "base/key.hpp"

#include "ops/activations.hpp"

namespace trireme::nn {

/// Between the layers of an MLP.
using ops::Activation;

/// Whether attention normalizes its queries and keys (ops/head_norm.hpp).
enum class QkNorm : std::uint8_t { none, without_gain, with_gain };

/// none: retain everything; gelu: recompute outputs of activation functions, a quarter of the
/// memory; block: retain only the input of the block.
enum class Recompute : std::uint8_t { none, gelu, block };

/// One word for all blocks, one word per block, or a limit in bytes that will decide
/// (model/recompute_choice.hpp).
using RecomputeKey = WordsOrBytes<Recompute>;

}  // namespace trireme::nn
