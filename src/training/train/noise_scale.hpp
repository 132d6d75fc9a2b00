// SPDX-License-Identifier: Apache-2.0
// The gradient noise scale: how large a batch is worth its tokens (docs/design/training.md,
// "Gradient noise scale"). Squared norms at two batch sizes give both unknowns without bias:
//
//   |G|^2 = (B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small)
//   tr(S) = (|G_small|^2 - |G_big|^2) / (1 / B_small - 1 / B_big)
//
// Far below the noise scale, a step with twice the batch makes almost twice the progress. Far above
// it, a larger batch gains nothing.
//
// Here B_big is a step and B_small one leaf of the tree that adds up its gradients
// (reduce/leaves.hpp); |G_small|^2 is the mean over all leaves. Sequences count as independent.
//
// 1. A quotient of estimates is biased, and an estimate of one step is noisy and may be negative:
//    both are averaged over steps first, the first 1 / (1 - smoothing) of them with equal weights,
//    then with weights that fall by `smoothing` per measurement.
// 2. The squared norms are order-free sums over gradients of the same leaves, so rows have the same
//    bits on any number of ranks.
// 3. A checkpoint stores the averages exactly, so a resumed run writes the same rows as a run that
//    was not interrupted.
//
// One thread. Every rank keeps the same object, because every rank writes its part of a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "record/run/rows.hpp"

namespace trireme::train {

struct NoiseEstimate {
  double gradient_squared = 0, trace = 0;
};

/// From squared norms of mean gradients over `small` and `big` sequences. Requires 0 < small < big.
NoiseEstimate estimate_noise(double small_squared, double big_squared, double small, double big);

class NoiseScale {
 public:
  /// What is compared in a step, in sequences; the estimates do not depend on it.
  struct Batches {
    std::int64_t leaf = 0, step = 0;
  };
  /// `context`: tokens of a sequence. Requires: 0 <= smoothing < 1.
  NoiseScale(std::int64_t context, double smoothing);

  /// Adds a step to the averages. Returns its row of /noise_scale. Requires: 0 < leaf < step.
  record::NoiseScaleRow add(std::int64_t step,
                            const Batches& batches,
                            double leaf_norm_squared,
                            double norm_squared);
  /// The current noise scale; NaN while it is not known.
  [[nodiscard]] double sequences() const;
  [[nodiscard]] double tokens() const;

  /// The averages as one line of text, for a checkpoint.
  [[nodiscard]] std::string packed() const;
  /// Restores the result of packed(); "" leaves them empty. Throws UserError naming `checkpoint`.
  void continue_from(const std::string& packed, const std::string& checkpoint);

 private:
  std::int64_t context_;
  double smoothing_;
  std::int64_t count_ = 0;  // measurements so far
  NoiseEstimate smoothed_;
};

}  // namespace trireme::train
