// SPDX-License-Identifier: Apache-2.0
// The tree of `parallel.reduction: tree`: gradients whose bits do not depend on the number of
// ranks.
//
// The global batch is cut into `logical_shards` equal leaves of consecutive sequences. A
// leaf's gradient is accumulated from zero over its micro-steps, in order; leaves are added in
// pairs, pairs in pairs, and so on. Each rank owns a whole subtree (base/pairwise.hpp), and the
// communicator adds the subtrees in pairs as well. So the additions are the same on 1, 2, 3, …
// ranks; only the rank that performs each one differs. If the number of ranks is not a power of
// two, some have twice as many leaves as others. Partial sums are fp32.
//
//   leaves   0  1  2  3  4  5  6  7        1 rank: all additions
//             \/    \/    \/    \/
//              \____/      \____/          2 ranks: one of these subtrees each
//                 \__________/             and this addition over the ranks
//
// A rank adds its leaves like a binary counter. When leaf j is complete and j has k trailing one
// bits, the k smallest waiting sums are added to it, smallest first, and the result becomes waiting
// sum k. This needs log2(leaves) waiting sums. The last leaf of a step is not set aside: the
// waiting sums are added to each of its gradients as soon as it is written, so that its bucket can
// be reduced while backward continues.
//
// 1. With one leaf per rank there is no memory for waiting sums and no pass over the gradients.
// 2. After construction nothing allocates and no address is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "reduce/compression.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

/// Number of leaves that the rank with most of them adds up; 1 unless the reduction is a tree.
/// Requires: logical_shards is a power of two and large enough that every rank has a leaf.
std::int64_t most_leaves_of_a_rank(const ParallelConfig& config, int ranks);

int num_waiting_sums(std::int64_t leaves);

class Leaves {
 public:
  /// `most`: leaves of a step. `gradients`: the arena in which every leaf accumulates. A
  /// `compression`, if any, keeps the leaves, because each leaf has an error.
  Leaves(std::int64_t most,
         const layout::Plan& plan,
         View gradients,
         device::Device& device,
         Compression* compression = nullptr);

  [[nodiscard]] std::int64_t most() const { return most_; }
  /// Number of leaves of this step.
  [[nodiscard]] std::int64_t per_step() const { return per_step_; }
  /// Number of leaves of this step that were set aside.
  [[nodiscard]] std::int64_t finished() const { return finished_; }
  [[nodiscard]] bool in_last() const { return finished_ + 1 == per_step_; }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }

  /// Requires: `leaves` is a power of two, most() at most.
  void begin_step(std::int64_t leaves);
  /// Sets the leaf in the arena aside and zeroes the arena. Requires: not in_last().
  void set_aside(device::Stream& stream);
  /// Makes the last leaf's gradient of one parameter the sum over all leaves. Requires: in_last().
  void add_waiting(ParameterIndex parameter, device::Stream& stream) const;

 private:
  std::int64_t most_, per_step_;
  std::int64_t finished_ = 0;
  std::size_t num_waiting_ = 0;  // in this step
  View gradients_;
  device::Device& device_;
  Compression* compression_;
  device::Buffer memory_;            // [waiting sum][flat element]
  std::vector<View> waiting_;        // by size: sum k is the sum of 2^k leaves
  std::vector<View> own_;            // by parameter: its gradient in the arena
  std::vector<View> waiting_parts_;  // [parameter][waiting sum]
};

}  // namespace trireme::reduce
