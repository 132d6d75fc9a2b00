// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "record/checkpoint/checkpoint.hpp"
#include "weights/fit.hpp"
#include "weights/open.hpp"

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

constexpr const char* weights_key = "run.initial_weights";
constexpr const char* rows_key = "run.initial_rows";

void compare(const Deck& deck, std::vector<Diagnostic>& findings) {
  const JobConfig& config = deck.config;
  const auto tokenizer = deck.tokenizer_of_data();
  const auto stored = weights::open_model(config.run.initial_weights, tokenizer != nullptr);
  std::ranges::move(deck.places.placed(weights::find_differences(
                        stored, {deck.shape(), config.run.initial_rows, tokenizer})),
                    std::back_inserter(findings));
}

}  // namespace

std::optional<record::CheckpointPlace> checkpoint_to_resume(const JobConfig& config) {
  std::error_code ignored;
  std::optional<record::CheckpointPlace> found;
  if (std::filesystem::is_directory(config.run.directory, ignored))
    found = record::newest_checkpoint(config.run.directory);
  if (!found && std::filesystem::is_directory(config.checkpoint.directory, ignored))
    found = record::newest_checkpoint_in(config.checkpoint.directory);
  return found;
}

void check_weights(const Deck& deck,
                   const Circumstances& circumstances,
                   std::vector<Diagnostic>& findings) {
  const JobConfig& config = deck.config;
  const KeyPlaces& places = deck.places;
  if (!places.readable(weights_key) || !places.readable(rows_key))
    return;
  if (config.run.initial_weights.empty()) {
    if (places.given(rows_key) && config.run.initial_rows != weights::InitialRows::exact)
      findings.push_back(
          {places.of(rows_key), rows_key, "without effect: run.initial_weights names no weights"});
    return;
  }
  bool sizes_known = places.readable("model.preset") && places.readable("model.family") &&
                     places.readable("data.tokenizer");
  for (const auto& [key, ignored] : model::key_values({}))
    sizes_known = sizes_known && places.readable("model." + key);
  find_at(weights_key, places, findings, [&] {
    if (circumstances.reads_weights && sizes_known && !checkpoint_to_resume(config))
      compare(deck, findings);
  });
}

}  // namespace trireme::deck
