// SPDX-License-Identifier: Apache-2.0
// Collects the parameters, with their initial values, and dropout sites that layers declare.
//
// A layer declares in its constructor, and layers are constructed in the order of forward. So the
// table, the indices and the initial values cannot disagree.
//
// 1. The registration order is the order of use in forward; layout and backward use the reverse
//    order. Checkpoints and initial values depend on the index.
// 2. A weight comes before its bias; a bias that a layer does not have is `absent`.
// 3. Weights of linear layers are stored [out, in]: forward is y = x · Wᵀ.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "layout/plan.hpp"

namespace trireme::nn {

inline constexpr ParameterIndex absent{-1};

/// Initial values: normal(0, deviation) when deviation > 0, else the constant.
struct Initial {
  double deviation = 0;
  float constant = 0;
};

class Registry {
 public:
  /// Sets `decay`, which matrices have and biases and gains do not, and `group`.
  ParameterIndex add(layout::Parameter parameter, Initial start);
  /// Parameters added after this call belong to the next layout::Parameter::group.
  void next_group() { ++group_; }
  /// Sites count from 0 in registration order; the masks of a site depend on its number.
  std::uint32_t add_dropout_site() { return num_sites_++; }

  [[nodiscard]] const std::vector<layout::Parameter>& table() const { return table_; }
  /// The index of the next parameter to be registered.
  [[nodiscard]] ParameterIndex next() const { return static_cast<ParameterIndex>(table_.size()); }

  /// Initial values from element `begin` on, fp32: a pure function of (seed, parameter, element).
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
