// SPDX-License-Identifier: Apache-2.0
#include "model/products.hpp"

#include <map>

namespace trireme::model {

std::vector<LinearProducts> linear_products(const GptShape& shape,
                                            DType dtype,
                                            std::int64_t micro_sequences,
                                            device::Kind kind) {
  const std::int64_t rows = micro_sequences * shape.context, C = shape.channels;
  std::vector<LinearProducts> all;
  const ActivationPlan plan(shape, dtype, micro_sequences, kind);
  const auto layer = [&](const char* name, std::int64_t in, std::int64_t out) {
    all.push_back({name, rows, in, out, plan.piece_rows(rows), shape.layers, shape.bias, dtype});
  };
  layer("qkv", C, 3 * C);
  layer("attention_projection", C, C);
  layer("fc", C, 4 * C);
  all.back().gelu_behind = shape.recompute != Recompute::gelu;
  layer("mlp_projection", 4 * C, C);
  all.back().gelu_before = true;

  std::map<std::int64_t, std::int64_t> chunks;  // rows, how many
  for (std::int64_t begin = 0, size = 0; begin < rows; begin += size) {
    size = plan.head_rows(begin, rows);
    ++chunks[size];
  }
  for (const auto& [size, count] : chunks)
    all.push_back({"head", size, C, shape.vocabulary, plan.piece_rows(size), count, false,
                   plan.scratch().logits.dtype});
  return all;
}

}  // namespace trireme::model
