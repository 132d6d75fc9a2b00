// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

/// Both sides of a disagreement between checkpoint.every_steps and checkpoint.keep_every, each
/// where the deck gave it.
void say_both(const Deck& deck,
              std::vector<Diagnostic>& findings,
              const std::string& about_kept,
              const std::string& about_every) {
  const auto say = [&](const char* path, const std::string& text) {
    if (deck.places.given(path))
      findings.push_back({deck.places.of(path), path, text});
  };
  say("checkpoint.keep_every", about_kept);  // is not 0, so it was given
  say("checkpoint.every_steps", about_every);
}

void milestones_are_saved(const Deck& deck, std::vector<Diagnostic>& findings) {
  const std::int64_t every = deck.config.checkpoint.every_steps;
  const std::int64_t kept = deck.config.checkpoint.keep_every;
  if (!deck.places.readable("checkpoint.every_steps") ||
      !deck.places.readable("checkpoint.keep_every") || kept == 0 ||
      (every > 0 && kept % every == 0))
    return;
  if (every == 0) {
    say_both(deck, findings,
             "no checkpoint is sure to be of such a step: checkpoint.every_steps is 0 (none)",
             "0 (none) leaves no step whose checkpoint checkpoint.keep_every can keep");
    return;
  }
  const std::int64_t below = kept / every * every;
  const std::string works =
      below > 0 ? fmt::format("{} or {}", below, below + every) : fmt::format("{}", every);
  say_both(deck, findings,
           fmt::format("{} is not a multiple of checkpoint.every_steps = {}; nearest that works: "
                       "{}",
                       kept, every, works),
           fmt::format("{} does not divide checkpoint.keep_every = {}", every, kept));
}

/// The only value of record.also is jsonl. CSV and TensorBoard are made by postproc.
void copies_are_known(const Deck& deck, std::vector<Diagnostic>& findings) {
  static constexpr const char* path = "record.also";
  const auto say = [&](const std::string& text) {
    findings.push_back({deck.places.of(path), path, text});
  };
  std::vector<std::string> seen;
  for (const std::string& word : deck.config.record.also) {
    if (std::ranges::find(seen, word) != seen.end())
      say(fmt::format("{} is named twice", word));
    else if (word == "csv" || word == "tensorboard")
      say(
          fmt::format("{0} is not a value. Use record.also: [jsonl], and run `trireme-postproc "
                      "export RUN_DIR --format {0} --follow` during the run",
                      word));
    else if (word != "jsonl")
      say(fmt::format("{:?} is not a value. The only one is jsonl", word));
    seen.push_back(word);
  }
}

}  // namespace

void check_record(const Deck& deck, std::vector<Diagnostic>& findings) {
  milestones_are_saved(deck, findings);
  copies_are_known(deck, findings);
}

}  // namespace trireme::deck
