// SPDX-License-Identifier: Apache-2.0
#include "train/resume.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "base/error.hpp"

#include "record/run/run_log.hpp"

#include "optim/schedule.hpp"

namespace trireme::train {
namespace {

/// A rate that grows or falls by more than this between two steps is not caused by a schedule.
constexpr double jump = 1.25;

bool is_data(const std::string& key) {
  return key.starts_with("data.") && key != "data.cache" && key != "data.skip" &&
         key != "data.tokenizer";
}

/// Whether run.allow_changes names the key or a section around it.
bool allowed(const session::Job& job, const std::string& key) {
  return std::ranges::any_of(job.run.allow_changes, [&](const std::string& word) {
    return key == word || key.starts_with(word + ".");
  });
}

/// A value short enough for a line, with the part in which it differs from `other`.
std::string shortened(const std::string& value, const std::string& other) {
  constexpr std::size_t most = 48, before = 8;
  if (value.size() <= most)
    return value;
  const auto differs =
      static_cast<std::size_t>(std::ranges::mismatch(value, other).in1 - value.begin());
  const std::size_t begin =
      std::min(differs - std::min(differs, before), value.size() - (most - 6));
  const std::string part = value.substr(begin, most - 6);
  return (begin > 0 ? "..." : "") + part + (begin + part.size() < value.size() ? "..." : "");
}

/// data.skip of a deck, where it is YAML.
batches::Skips skips_of(const record::NameValues& deck) {
  std::string text = fact_of(deck, "data.skip");
  std::ranges::replace_if(
      text, [](char c) { return c != '-' && (c < '0' || c > '9'); }, ' ');
  std::istringstream words(text);
  return batches::Skips({std::istream_iterator<std::string>(words), {}});
}

template <class T>
void take(const record::NameValues& deck, const char* key, T& value) {
  const std::string text = fact_of(deck, key);
  T read{};
  if (std::from_chars(text.data(), text.data() + text.size(), read).ec == std::errc())
    value = read;
}

/// The optimizer's section as the checkpoint's deck has it, if it is there; `steps` becomes those
/// of its schedule.
optim::OptimizerConfig optimizer_then(const record::NameValues& deck,
                                      const session::Job& job,
                                      std::int64_t& steps) {
  optim::OptimizerConfig then = job.optimizer;
  take(deck, "optimizer.learning_rate", then.learning_rate);
  take(deck, "optimizer.schedule.warmup_steps", then.schedule.warmup_steps);
  take(deck, "optimizer.schedule.final_fraction", then.schedule.final_fraction);
  take(deck, "optimizer.schedule.decay_fraction", then.schedule.decay_fraction);
  const auto choose = [&]<class E>(const char* key, E& value) {
    value = value_named<E>(fact_of(deck, key)).value_or(value);
  };
  choose("optimizer.schedule.kind", then.schedule.kind);
  choose("optimizer.schedule.decay_shape", then.schedule.decay_shape);
  take(deck, "run.steps", steps);
  take(deck, "optimizer.schedule.steps", steps);  // "auto" is not a number
  return then;
}

struct DeckChange {
  std::string key, then, now;
  Change rule = Change::free;
};

/// Every key whose value differs, in the order of the deck; keys that the old deck did not have are
/// left out.
std::vector<DeckChange> deck_changes(const record::NameValues& then, const session::Job& job) {
  std::vector<DeckChange> changes;
  for (std::size_t i = 0; i < job.deck.size(); ++i) {
    const auto& [key, now] = job.deck[i];
    const std::string* old = record::find_fact(then, key);
    if (old != nullptr && *old != now && key != "run.allow_changes")
      changes.push_back({key, *old, now, i < job.rules.size() ? job.rules[i] : Change::free});
  }
  return changes;
}

}  // namespace

std::string tokenizer_text(const session::Job& job) {
  return job.tokenizer ? fmt::format("{:016x}", job.tokenizer->hash()) : unknown_tokenizer;
}

void expect_allowed(const Resumed& resumed, const session::Job& job, const std::string& data_hash) {
  std::vector<Diagnostic> found;
  const auto say = [&](const std::string& key, std::string text) {
    found.push_back({{}, key, std::move(text)});
  };
  const record::CheckpointFacts& then = resumed.facts;
  const std::string data_then = fact_of(then.more, data_hash_fact);
  const bool data_known = !data_then.empty();  // not where it was imported
  const bool same_data = data_known && data_then == data_hash;
  for (const DeckChange& change : deck_changes(then.deck, job)) {
    if (change.rule == Change::free || (is_data(change.key) && same_data) ||
        change.key == "data.tokenizer")
      continue;
    const std::string what =
        fmt::format("{} here, but {} was written with {}", shortened(change.now, change.then),
                    resumed.directory, shortened(change.then, change.now));
    if (change.rule == Change::never)
      say(change.key, what +
                          ", and a run cannot change it; change the deck back, or name another "
                          "run.directory");
    else if (!allowed(job, change.key))
      say(change.key, fmt::format("{}; change it back, or allow it with run.allow_changes=[{}]",
                                  what, change.key));
  }
  if (record::find_fact(then.deck, "run.seed") == nullptr &&  // imported weights
      then.seed != static_cast<std::uint64_t>(job.run.seed))
    say("run.seed",
        fmt::format("{} here, but {} was written with {}; resume with that seed, or name another "
                    "run.directory",
                    job.run.seed, resumed.directory, then.seed));
  if (!skips_of(job.deck).same_before(static_cast<std::int64_t>(then.next_sample),
                                      skips_of(then.deck)))
    say("data.skip",
        fmt::format("{} differs from {} among the {} samples before {}. Skip only later samples, "
                    "or move the checkpoints after the first sample that differs to another "
                    "directory",
                    fact_of(job.deck, "data.skip"), fact_of(then.deck, "data.skip"),
                    then.next_sample, resumed.directory));
  const std::string tokenizer = tokenizer_text(job),
                    tokenizer_then = fact_of(then.more, tokenizer_fact);
  const auto known = [](const std::string& one) {
    return !one.empty() && one != unknown_tokenizer;
  };
  if (tokenizer != tokenizer_then && known(tokenizer_then))  // unknown then: one may be named now
    say("data.tokenizer",
        fmt::format(
            "{} {}, but {} was written with a tokenizer of hash {}, and a run cannot change it; "
            "put the old one back, or name another run.directory",
            job.data.tokenizer,
            known(tokenizer) ? "has hash " + tokenizer : "is not the tokenizer of these tokens",
            resumed.directory, tokenizer_then));
  const bool data_said = std::ranges::any_of(
      found, [](const Diagnostic& finding) { return is_data(finding.subject); });
  const bool data_allowed = std::ranges::any_of(job.run.allow_changes, [](const std::string& word) {
    return word == "data" || is_data(word);
  });
  if (data_known && !same_data && !data_said && !data_allowed)
    say("data", fmt::format("these are not the tokens that {} was trained on: the files were "
                            "changed; put them back, or allow it with run.allow_changes=[data]",
                            resumed.directory));
  if (!found.empty())
    throw UserError(std::move(found));
}

std::string choose_run_id(const record::RunDirectory& directory,
                          const std::optional<Resumed>& resumed) {
  if (!resumed)
    return record::new_run_id();
  std::string mine = directory.stored_id();
  const std::string theirs = fact_of(resumed->facts.more, run_id_fact);
  if (!mine.empty() && !theirs.empty() && mine != theirs)
    throw UserError(
        Place{resumed->directory},
        fmt::format(
            "this is a checkpoint of run {}, and {}/run.id names run {}. Nothing was changed. To "
            "resume the run of the checkpoint, move steps.jsonl, run.h5 and run.id to another "
            "place and put back its own record if there is one (steps.jsonl.attempt-N). To resume "
            "run {}, bring back its own checkpoints. Otherwise choose another run.directory",
            theirs, directory.path(), mine, mine));
  if (!mine.empty())
    return mine;
  return theirs.empty() ? record::new_run_id() : theirs;
}

std::int64_t skipped_in_a_row(const Resumed& resumed) {
  std::int64_t skipped = 0;
  take(resumed.facts.more, skipped_fact, skipped);
  return skipped;
}

std::vector<std::string> change_table(const Resumed& resumed,
                                      const session::Job& job,
                                      const std::string& data_hash) {
  auto changes = deck_changes(resumed.facts.deck, job);
  if (const std::string then = fact_of(resumed.facts.more, data_hash_fact);
      !then.empty() && then != data_hash)
    changes.push_back({"data (hash of its tokens)", then, data_hash, Change::asked});
  std::vector<std::string> lines;
  if (changes.empty())
    return lines;
  std::size_t keys = 0, values = 0;
  for (const DeckChange& change : changes) {
    keys = std::max(keys, change.key.size());
    values = std::max(values, shortened(change.then, change.now).size());
  }
  lines.push_back(fmt::format("changed since step {}:", resumed.facts.step));
  for (const DeckChange& change : changes)
    lines.push_back(fmt::format("  {:<{}}  {:>{}} -> {}", change.key, keys,
                                shortened(change.then, change.now), values,
                                shortened(change.now, change.then)));
  return lines;
}

std::string unread_weights(const Resumed& resumed, const session::Job& job) {
  if (job.run.initial_weights.empty())
    return "";
  const std::string origin = fact_of(resumed.facts.more, record::origin_path_fact);
  return fmt::format(
      "run.initial_weights: not read, since the run resumes from step {}; it began with {}",
      resumed.facts.step, origin.empty() ? "random weights" : "those of " + origin);
}

std::string rate_jump(const Resumed& resumed, const session::Job& job) {
  if (resumed.facts.step < 1)
    return "";
  std::int64_t steps = job.run.steps;
  const auto before = optimizer_then(resumed.facts.deck, job, steps);
  const std::int64_t steps_now = job.schedule_steps();
  if (steps == steps_now)
    return "";
  const double then = optim::learning_rate(before, resumed.facts.step, steps);
  const double meant = optim::learning_rate(before, resumed.facts.step + 1, steps);
  const double stretched = optim::learning_rate(before, resumed.facts.step + 1, steps_now);
  const double now = optim::learning_rate(job.optimizer, resumed.facts.step + 1, steps_now);
  if (!(std::max(stretched / meant, meant / stretched) > jump))
    return "";  // what else changed is in change_table()
  return fmt::format(
      "the learning rate jumps from {:.3g} at step {} to {:.3g} at step {}: its schedule ends with "
      "step {} now, and with step {} then; optimizer.schedule.steps={} keeps the one that the run "
      "had",
      then, resumed.facts.step, now, resumed.facts.step + 1, steps_now, steps, steps);
}

}  // namespace trireme::train
