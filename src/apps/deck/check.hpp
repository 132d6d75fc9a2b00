// SPDX-License-Identifier: Apache-2.0
// Cross-checks: rules between keys of a deck. Each rule names the keys it uses. It is skipped if
// one of them could not be read, and its findings are reported at each of the keys that was given,
// so that both sides of a conflict have a line.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint.hpp"

#include "session/config.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// Appends findings about keys that are valid individually but not together.
void check(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings);

/// The keys that the deck sets and the run does not read, with the reason.
std::vector<Diagnostic> idle_keys(const Deck& deck);

/// The part of check() for run.initial_weights: compares the headers of the files with the deck's
/// model. Reads nothing if the run would continue from a checkpoint.
void check_weights(const Deck& deck,
                   const Circumstances& circumstances,
                   std::vector<Diagnostic>& findings);

/// The checkpoint that a run of the deck would find.
std::optional<record::CheckpointPlace> checkpoint_to_resume(const JobConfig& config);

/// "FILE:3:14: text", for a finding about a file other than the deck.
std::string elsewhere(const Diagnostic& finding);
/// Runs `action`, whose errors about the value of `key` become findings.
template <class Action>
void find_at(const char* key,
             const KeyPlaces& places,
             std::vector<Diagnostic>& findings,
             const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    for (const Diagnostic& one : error.findings())
      findings.push_back({places.of(key), key, one.place.file.empty() ? one.text : elsewhere(one)});
  } catch (const StorageError& error) {
    findings.push_back({places.of(key), key, error.what()});
  }
}

/// A size that a step's batch may have, and the key that sets it.
struct BatchSize {
  std::string path;
  std::int64_t sequences = 0;
};

/// Whether the deck gives this key another value than its default; deck.resolved.yaml gives all.
bool is_altered(const KeyPlaces& places, const JobConfig& config, const std::string& path);

/// What a rule reads, and where its findings go.
class Rules {
 public:
  /// All must outlive the object and its copies; findings are appended to `findings`.
  Rules(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings)
      : places_(deck.places),
        config_(deck.config),
        circumstances_(circumstances),
        tokenizer_(deck.tokenizer.get()),
        shape_(deck.shape()),
        findings_(findings) {}

 protected:
  /// Whether all of these keys could be read.
  [[nodiscard]] bool readable(std::initializer_list<const char*> paths) const;
  void say(const std::string& path, std::string text) const;
  /// The values of these keys are not possible together: adds a line for each key that was given, or
  /// for the first key's section if none was. Nothing if one of them could not be read.
  void conflict(const std::vector<std::string>& keys, const std::string& why) const;
  [[nodiscard]] bool altered(const std::string& path) const {
    return is_altered(places_, config_, path);
  }
  /// The sizes that could be read, from batch.sequences and batch.schedule.
  [[nodiscard]] std::vector<BatchSize> readable_sizes() const;

  const KeyPlaces& places_;
  const JobConfig& config_;
  const Circumstances& circumstances_;
  const text::Tokenizer* tokenizer_;  // null if it could not be read
  const model::GptShape shape_;       // sizes that are missing are 0, and reported

 private:
  /// As a deck states it; "" for lists.
  [[nodiscard]] std::string value_of(const std::string& path) const;

  std::vector<Diagnostic>& findings_;
};

/// "96 or 128": the positive multiples of `unit` around `size`, which is not a multiple.
std::string multiples_near(std::int64_t size, std::int64_t unit);

/// Batches that cannot be split over the ranks, and invalid schedules.
void check_batch(const Rules& rules);
/// Whether the parts of the model are compatible and there are kernels for them.
void check_model(const Rules& rules);
/// checkpoint.keep_every without a checkpoint of its steps, and sets of evaluate.sets whose name is
/// not unique or cannot name a group of run.h5, or without exactly one source.
void check_record(const Rules& rules);
/// Text that includes files of the run.
void check_own_files(const Rules& rules);
/// parallel.shard: gradients and parameters, with which each bucket is reduced in every micro-step;
/// parallel.replicate; optimizer.outer.local_steps; parallel.reduction: tree, and keys that need
/// its leaves.
void check_parallel(const Rules& rules);

}  // namespace trireme::deck
