// SPDX-License-Identifier: Apache-2.0
// Cross-checks: rules between keys of a deck. Each rule names the keys it uses. It is skipped if
// one of them could not be read, and its findings are reported at each of the keys that was given,
// so that both sides of a conflict have a line.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "session/config.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// Appends findings about keys that are valid individually but not together.
void check(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings);

/// The part of check() for run.initial_weights: reads the headers of the files and compares them
/// with the deck's model. Reads nothing if the run directory contains a checkpoint from which the
/// run would continue.
void check_weights(const Deck& deck,
                   const Circumstances& circumstances,
                   std::vector<Diagnostic>& findings);

/// "FILE:3:14: text", for a finding about a file other than the deck.
std::string elsewhere(const Diagnostic& finding);

/// The message for one of the keys in a conflict.
struct Side {
  std::string path;
  std::string text;
};

class Findings {
 public:
  /// Both must outlive the object; findings are appended to `all`.
  Findings(const KeyPlaces& places, std::vector<Diagnostic>& all)
      : places_(places), findings_(all) {}

  /// Whether all of these keys could be read.
  [[nodiscard]] bool readable(std::initializer_list<const char*> paths) const;
  void say(const std::string& path, std::string text);
  /// Adds a line for each key that was given, or for the first key's section if none was.
  void disagree(std::vector<Side> sides);
  [[nodiscard]] const KeyPlaces& places() const { return places_; }

 protected:
  const KeyPlaces& places_;

 private:
  std::vector<Diagnostic>& findings_;
};

/// A size that a step's batch may have, and the key that sets it.
struct BatchSize {
  std::string path;
  std::int64_t sequences = 0;
};

/// The sizes that could be read, from batch.sequences and batch.schedule.
std::vector<BatchSize> readable_sizes(const session::BatchConfig& batch, const KeyPlaces& places);

/// Batches that cannot be split over the ranks, and invalid schedules.
void check_batch(const JobConfig& config,
                 const model::GptShape& shape,
                 const Circumstances& circumstances,
                 Findings& findings);

/// Whether the parts of the model are compatible and there are kernels for them. `shape` is that of
/// `config.model`. The caller reports missing sizes.
void check_model(const JobConfig& config,
                 const model::GptShape& shape,
                 const KeyPlaces& places,
                 Findings& findings);

/// checkpoint.keep_every without a checkpoint of its steps.
void check_checkpoints(const record::CheckpointConfig& config, Findings& findings);

/// Adds a finding for each of evaluate.sets whose name is not unique or cannot name a group of
/// run.h5, and for each set without exactly one source.
void check_evaluation_sets(const session::EvaluateConfig& config,
                           const KeyPlaces& places,
                           Findings& findings);

/// parallel.shard: gradients and parameters, and parallel.replicate. With these, each bucket is
/// reduced in every micro-step as soon as its gradients are complete, and with parameters no rank
/// has a whole model. Replicas must divide the ranks equally. And optimizer.outer.local_steps.
void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

/// parallel.reduction: tree, and keys that need its leaves.
void check_tree(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

}  // namespace trireme::deck
