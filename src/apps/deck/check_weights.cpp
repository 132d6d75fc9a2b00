// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/checkpoint_directory.hpp"
#include "weights/fit.hpp"
#include "weights/open.hpp"

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

namespace fs = std::filesystem;

constexpr const char* weights_key = "run.initial_weights";
constexpr const char* rows_key = "run.initial_rows";

/// Whether a run would find a checkpoint and continue from it.
bool resumes(const JobConfig& config) {
  if (record::newest_checkpoint(config.run.directory))
    return true;
  std::error_code ignored;
  for (fs::directory_iterator entry(config.checkpoint.directory, ignored), end;
       !config.checkpoint.directory.empty() && !ignored && entry != end; entry.increment(ignored))
    if (record::step_of(entry->path().filename().string()) >= 0)
      return true;
  return false;
}

void compare(const Deck& deck, std::vector<Diagnostic>& findings) {
  const JobConfig& config = deck.config;
  const auto place_of = [&](const std::string& key) { return deck.places.of(key); };
  const auto tokenizer = deck.tokenizer_of_data();
  const auto stored = weights::open_model(config.run.initial_weights, tokenizer != nullptr);
  auto found = weights::find_differences(
      stored, {deck.shape(), config.run.initial_rows, tokenizer, place_of});
  std::ranges::move(found, std::back_inserter(findings));
}

}  // namespace

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
    if (circumstances.reads_weights && sizes_known && !resumes(config))
      compare(deck, findings);
  });
}

}  // namespace trireme::deck
