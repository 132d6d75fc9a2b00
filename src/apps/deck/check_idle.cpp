// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "deck/check.hpp"
#include "deck/survey.hpp"

namespace trireme::deck {
namespace {

/// Keys that a run reads only with another key's value.
struct Group {
  const char* prefix;
  bool used;
  const char* because;
};

std::vector<Group> groups_of(const JobConfig& config) {
  const auto& optimizer = config.optimizer;
  const auto& schedule = optimizer.schedule;
  const bool decays = schedule.kind == optim::Schedule::wsd;
  return {
      {"optimizer.muon.", optimizer.kind == optim::Kind::muon, "optimizer.kind is not muon"},
      {"optimizer.outer.", optimizer.outer.on(), "optimizer.outer.local_steps is 1"},
      {"optimizer.max_skipped_steps", optimizer.on_non_finite == optim::OnNonFinite::skip,
       "optimizer.on_non_finite is not skip"},
      {"optimizer.schedule.final_fraction", schedule.kind != optim::Schedule::constant,
       "optimizer.schedule.kind is constant"},
      {"optimizer.schedule.decay_fraction", decays, "optimizer.schedule.kind is not wsd"},
      {"optimizer.schedule.decay_shape", decays, "optimizer.schedule.kind is not wsd"},
      {"parallel.prefetch", config.parallel.shard == layout::Shard::parameters,
       "parallel.shard is not parameters"},
      {"evaluate.batches", config.evaluate.every_steps > 0, "evaluate.every_steps is 0"},
      {"evaluate.noise_scale.", config.evaluate.noise_scale.every_steps > 0,
       "evaluate.noise_scale.every_steps is 0"},
      {"sample.", config.sample.every_steps > 0, "sample.every_steps is 0"},
  };
}

}  // namespace

std::vector<Diagnostic> idle_keys(const Deck& deck) {
  const std::vector<Entry> entries = survey(deck.config);
  std::vector<Diagnostic> found;
  for (const Group& group : groups_of(deck.config))
    for (const Entry& entry : entries)
      if (!group.used && entry.path.starts_with(group.prefix) &&
          is_altered(deck.places, deck.config, entry.path))
        found.push_back({deck.places.of(entry.path), entry.path,
                         fmt::format("has no effect: {}", group.because)});
  return found;
}

}  // namespace trireme::deck
