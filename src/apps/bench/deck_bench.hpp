// SPDX-License-Identifier: Apache-2.0
// Benches of what a deck's step computes, as a table for people and as JSON. All ranks measure at
// the same time (race.hpp), with OpenMP's number of threads.
#pragma once

#include <string>
#include <utility>

#include "base/json.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

namespace trireme::bench {

/// Micro-batches of a step on the rank with most of them; a smaller last one counts as a part.
double micro_batches_of(const session::Job& job, int ranks);

/// `trireme bench matmul`: matrix products with the shapes of a deck, on all threads and, on a CPU,
/// on one (see bench/ceiling.hpp). Collective.
///
/// The *floor* is the time of a step's products on one rank without gaps, each with its fastest
/// kernel. No step with these products can be shorter.
std::pair<std::string, Json> bench_matmul(const session::Job& job,
                                          device::Device& device,
                                          comm::World& world,
                                          int repetitions);

/// `trireme bench ops`: times every operation of a training step alone, with the sizes of a deck,
/// and computes its share of a rank's step. Collective.
///
/// A row's rate is FLOP/s for products and bytes/s for all else; bytes are those that the operation
/// must read and write once. Its share is of the *ceiling* of that kind: the best rate of the
/// deck's products (bench/ceiling.hpp), or of passes over memory that does not fit the caches, read
/// and written bytes counted. Small tensors stay in caches, so their share can exceed 100 %.
///
/// Deck keys that choose between implementations (gpu.fused_gelu, fused_gelu_backward and
/// fused_bias_gradients, model.loss_rows) have a row for each one that the device supports; those
/// that the deck does not use are counted 0 times.
///
/// Attention's FLOP are the causal half, and a row is one document.
std::pair<std::string, Json> bench_ops(const session::Job& job,
                                       device::Device& device,
                                       comm::World& world,
                                       int repetitions);

}  // namespace trireme::bench
