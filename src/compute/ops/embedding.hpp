// SPDX-License-Identifier: Apache-2.0
// Token plus position embedding.
//
// Shapes: tokens = [B, T] int32, 0 <= token < V (the data room has checked); out, dout = [B, T, C]
// of T; wte = [V, C], wpe = [T', C] of T with T' >= T, or empty: tokens alone; dwte, dwpe the same
// shapes in fp32, added to in a fixed order (by row, then position), so deterministic.
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/dropout.hpp"
#include "ops/shapes.hpp"

namespace trireme::ops {

void embedding_forward(View out,
                       ConstView tokens,
                       ConstView wte,
                       ConstView wpe,
                       const EmbeddingShape& shape,
                       const Dropout& dropout,
                       device::Stream& stream);
/// Of single positions: out = [R, C], tokens, positions = [R] int32, 0 <= position < T'. The bits
/// of a row are those of embedding_forward at its position. CPUs alone have it.
void embedding_of_positions(View out,
                            ConstView tokens,
                            ConstView positions,
                            ConstView wte,
                            ConstView wpe,
                            std::int64_t vocabulary,
                            device::Stream& stream);
void embedding_backward(View dwte,
                        View dwpe,
                        ConstView dout,
                        ConstView tokens,
                        const EmbeddingShape& shape,
                        const Dropout& dropout,
                        device::Stream& stream);

}  // namespace trireme::ops
