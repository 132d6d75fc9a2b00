// SPDX-License-Identifier: Apache-2.0
// The parts of check() (check.hpp), each about one section or one mode of parallel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/config.hpp"

#include "deck/check.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// A size that a step's batch may have, and the key that sets it.
struct BatchSize {
  std::string path;
  std::int64_t sequences = 0;
};

/// The sizes that could be read, from batch.sequences and batch.schedule.
std::vector<BatchSize> readable_sizes(const trireme::session::BatchConfig& batch,
                                      const KeyPlaces& places);

/// Batches that cannot be split over the ranks, and invalid schedules.
void check_batch(const JobConfig& config,
                 const trireme::model::GptShape& shape,
                 const Circumstances& circumstances,
                 Findings& findings);

/// Whether the parts of the model are compatible and there are kernels for them. `shape` is that of
/// `config.model`. The caller reports missing sizes.
void check_model(const JobConfig& config,
                 const trireme::model::GptShape& shape,
                 const KeyPlaces& places,
                 Findings& findings);

/// Adds a finding for each of evaluate.sets whose name is not unique or cannot name a group of
/// run.h5, and for each set without exactly one source.
void check_evaluation_sets(const session::EvaluateConfig& config,
                           const KeyPlaces& places,
                           Findings& findings);

/// parallel.shard: gradients and parameters, and parallel.replicate. With these, each bucket is
/// reduced in every micro-step as soon as its gradients are complete, and with parameters no rank
/// has a whole model. Replicas must divide the ranks equally.
void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

/// parallel.reduction: tree, and keys that need its leaves.
void check_tree(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

}  // namespace trireme::deck
