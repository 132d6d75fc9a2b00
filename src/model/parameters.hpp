// SPDX-License-Identifier: Apache-2.0
// Where each parameter of a GPT stands in the parameter table, and how it starts out. One function
// registers them all, so the table, the indices and the initial values cannot disagree.
//
// 1. The registration order is the order of use in forward; the layout and the backward pass run it
// in reverse. The index is part of what checkpoints and initial values rely on.
// 2. A weight stands before its bias; without biases the bias is `absent`.
// 3. Weights are stored [out, in]: forward is y = x · Wᵀ.
#pragma once

#include <vector>

#include "base/index.hpp"

#include "layout/plan.hpp"

#include "model/config.hpp"

namespace trireme::model {

/// Stands for a bias that the model does not have.
inline constexpr ParameterIndex absent{-1};

/// A linear layer or a layer norm.
struct WeightAndBias {
  ParameterIndex weight = absent;
  ParameterIndex bias = absent;
};

struct BlockParameters {
  WeightAndBias ln_1, qkv, attention_projection, ln_2, fc, mlp_projection;
  ParameterIndex first = absent;  ///< the block's parameters are [first, first + count)
  std::size_t count = 0;
};

/// Initial values: normal(0, deviation) when deviation > 0, else the constant.
struct Initial {
  double deviation = 0;
  float constant = 0;
};

struct ParameterSet {
  explicit ParameterSet(const GptShape& shape);

  std::vector<layout::Parameter> table;
  std::vector<Initial> initial;  ///< as `table`
  ParameterIndex wte = absent, wpe = absent;
  std::vector<BlockParameters> blocks;
  WeightAndBias ln_f;
  ParameterIndex head = absent;  ///< equal to wte when tied

 private:
  ParameterIndex add(std::string name, std::vector<std::int64_t> shape, Initial start);
  WeightAndBias add_norm(const std::string& name, const GptShape& shape);
  WeightAndBias add_linear(
      const std::string& name, std::int64_t out, std::int64_t in, double deviation, bool bias);
};

}  // namespace trireme::model
