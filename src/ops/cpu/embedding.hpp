// SPDX-License-Identifier: Apache-2.0
// CPU bodies of embedding.hpp; T is float or Bf16. Null `wpe` and `dwpe`: tokens alone. Forward
// divides rows among threads; backward divides columns, since a token may come many times: each
// thread adds up all rows of its columns, in their order.
#pragma once

#include <cstdint>

#include "ops/dropout.hpp"
#include "ops/embedding.hpp"

namespace trireme::ops::cpu {

template <class T>
void embedding_forward(T* out,
                       const std::int32_t* tokens,
                       const T* wte,
                       const T* wpe,
                       const EmbeddingShape& shape,
                       const Dropout& dropout);
template <class T>
void embedding_of_positions(T* out,
                            const std::int32_t* tokens,
                            const std::int32_t* positions,
                            const T* wte,
                            const T* wpe,
                            const EmbeddingShape& shape);
template <class T>
void embedding_backward(float* dwte,
                        float* dwpe,
                        const T* dout,
                        const std::int32_t* tokens,
                        const EmbeddingShape& shape,
                        const Dropout& dropout);

}  // namespace trireme::ops::cpu
