// SPDX-License-Identifier: Apache-2.0
// Where layers declare what they own: parameters with their initial values, and dropout sites.
//
// A layer declares in its constructor, and a family constructs its layers in the order of forward.
// So the table, the indices and the initial values cannot disagree, and a family is the list of its
// layers.
//
// 1. The registration order is the order of use in forward; the layout and the backward pass run it
//    in reverse. The index is part of what checkpoints and initial values rely on.
// 2. A weight comes before its bias; a bias that a layer does not have is `absent`.
// 3. Weights of linear layers are stored [out, in]: forward is y = x · Wᵀ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "layout/plan.hpp"

namespace trireme::nn {

/// Stands for a parameter that the layer does not have.
inline constexpr ParameterIndex absent{-1};

/// Initial values: normal(0, deviation) when deviation > 0, else the constant.
struct Initial {
  double deviation = 0;
  float constant = 0;
};

class Registry {
 public:
  /// Matrices decay (layout::Parameter::decay), biases and gains do not.
  ParameterIndex add(std::string name,
                     std::vector<std::int64_t> shape,
                     Initial start,
                     bool own_bucket = false);
  /// The value of layout::Parameter::matrices. Requires: a parameter [rows, columns] whose rows
  /// are the sum of `heights`.
  void set_matrices(ParameterIndex parameter, std::vector<std::int64_t> heights);
  /// What is added from now on belongs to another layout::Parameter::group.
  void next_group() { ++group_; }
  /// Sites count from 0 in registration order; the masks of a site depend on its number.
  std::uint32_t add_dropout_site() { return num_sites_++; }

  [[nodiscard]] const std::vector<layout::Parameter>& table() const { return table_; }
  /// The parameter that is registered next.
  [[nodiscard]] ParameterIndex next() const { return static_cast<ParameterIndex>(table_.size()); }

  /// Initial values of one parameter's elements from `begin` on, fp32: a pure function of (seed,
  /// parameter, element).
  void initialize(ParameterIndex parameter,
                  std::uint64_t seed,
                  View values,
                  std::int64_t begin = 0) const;

 private:
  std::vector<layout::Parameter> table_;
  std::vector<Initial> initial_;  // as table_
  std::uint32_t num_sites_ = 0;
  int group_ = 0;
};

}  // namespace trireme::nn
