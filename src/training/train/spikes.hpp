// SPDX-License-Identifier: Apache-2.0
// Finds steps with a far larger gradient than before: a sign of divergence, or of an odd document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optim/layer_norms.hpp"

namespace trireme::train {

/// The last values of a positive quantity, as logarithms.
class History {
 public:
  static constexpr std::size_t least = 16, most = 64;  ///< values

  /// How many times their median `value` is; 1 while there are few.
  [[nodiscard]] double factor(double value) const;
  /// Whether that is at least 3, and the logarithm is more than 10 median distances (MAD) above the
  /// median. Never while there are few, as in the first steps after a start.
  [[nodiscard]] bool stands_out(double value) const;
  void add(double value);

 private:
  std::vector<double> values_;
  std::size_t next_ = 0;
};

class Spikes {
 public:
  /// A line for the log when the gradient of a step begins to stand out; else empty. `norms`: as
  /// StepOutcome::norms. If the first such step does not show the layer, because it was not
  /// measured, there is another line at the next one that does.
  std::string look(std::int64_t step, double grad_norm, std::span<const optim::LayerNorm> norms);

 private:
  /// "that of block 3 9.0 times", or "" if that is not known.
  [[nodiscard]] std::string worst_layer(std::span<const optim::LayerNorm> norms) const;

  History gradients_;
  std::vector<History> layers_;
  bool spiking_ = false, named_ = false;
};

}  // namespace trireme::train
