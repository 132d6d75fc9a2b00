// SPDX-License-Identifier: Apache-2.0
// Token plus position embedding: out[b, t] = dropout(wte[tokens[b, t]] + wpe[t]).
#pragma once

#include <cstdint>

#include "ops/dropout.hpp"
#include "ops/operation.hpp"

namespace trireme::ops {

struct EmbeddingShape {
  std::int64_t batch = 0, time = 0, channels = 0, vocabulary = 0;
};

struct EmbeddingForward {
  static constexpr const char* name = "embedding_forward";
  View out;          ///< [batch, time, channels] of T
  ConstView tokens;  ///< [batch, time] int32, 0 <= token < vocabulary: the bodies rely on it
  ConstView positions = {};  ///< [batch, time] int32, 0 <= position < context; optional: t
  ConstView wte;             ///< [vocabulary, channels] of T
  ConstView wpe = {};        ///< [context, channels] of T, context >= time; optional: tokens alone
  EmbeddingShape shape;
  Dropout dropout = {};
};
TRIREME_OPERATION(EmbeddingForward);

/// Gradients are added to in a fixed order (by row, then position), so they are deterministic.
struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  static constexpr bool uses_workspace = true;
  View dwte;         ///< [vocabulary, channels] fp32
  View dwpe = {};    ///< [context, channels] fp32; where there is a wpe
  ConstView dout;    ///< [batch, time, channels] of T
  ConstView tokens;  ///< as in forward
  EmbeddingShape shape;
  Dropout dropout = {};
};
TRIREME_OPERATION(EmbeddingBackward);

namespace cuda {
/// Minimum bytes of workspace for EmbeddingBackward.
std::size_t embedding_backward_bytes(std::int64_t tokens, std::int64_t channels);
}  // namespace cuda

}  // namespace trireme::ops
