// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

/// Reports a conflict between checkpoint.every_steps and checkpoint.keep_every, at each key that
/// was given.
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
             "there may be no checkpoint of these steps: checkpoint.every_steps is 0 (none)",
             "0 (none) writes no checkpoints that checkpoint.keep_every could keep");
    return;
  }
  const std::int64_t below = kept / every * every;
  const std::string works =
      below > 0 ? fmt::format("{} or {}", below, below + every) : fmt::format("{}", every);
  say_both(deck, findings,
           fmt::format("{} is not a multiple of checkpoint.every_steps = {}. Use {}.", kept, every,
                       works),
           fmt::format("{} does not divide checkpoint.keep_every = {}", every, kept));
}

}  // namespace

void check_record(const Deck& deck, std::vector<Diagnostic>& findings) {
  milestones_are_saved(deck, findings);
}

}  // namespace trireme::deck
