// SPDX-License-Identifier: Apache-2.0
// Calls of embedding.hpp; T is float or Bf16. Null `wpe` and `dwpe`: tokens alone.
//
// Shapes: tokens = [batch, time]; out, dout = [batch, time, channels]; wte, dwte = [vocabulary,
// channels]; wpe, dwpe = [time or more, channels]. Ids have been checked: bodies index without a
// bound.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/calls/call.hpp"
#include "ops/dropout.hpp"
#include "ops/shapes.hpp"

namespace trireme::ops {

template <class T>
struct EmbeddingForward {
  static constexpr const char* name = "embedding_forward";
  T* out;
  const std::int32_t* tokens;
  const T* wte;
  const T* wpe;
  EmbeddingShape shape;
  Dropout dropout;
};

/// The shape's batch is the number of rows, its time 1. CPUs alone have it.
template <class T>
struct EmbeddingOfPositions {
  static constexpr const char* name = "embedding_of_positions";
  T* out;
  const std::int32_t* tokens;
  const std::int32_t* positions;
  const T* wte;
  const T* wpe;
  EmbeddingShape shape;
};

template <class T>
struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  static constexpr bool uses_workspace = true;
  float* dwte;
  float* dwpe;
  const T* dout;
  const std::int32_t* tokens;
  EmbeddingShape shape;
  Dropout dropout;
};

namespace cpu {
template <class T>
void run(Threads, const EmbeddingForward<T>& call);
template <class T>
void run(Threads, const EmbeddingOfPositions<T>& call);
template <class T>
void run(Threads, const EmbeddingBackward<T>& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const EmbeddingForward<T>& call);
/// Bytes of workspace that backward needs at the least.
std::size_t embedding_backward_bytes(std::int64_t tokens, std::int64_t channels);
template <class T>
void run(const Queue& queue, const EmbeddingBackward<T>& call);
}  // namespace cuda

}  // namespace trireme::ops
