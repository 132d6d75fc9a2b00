// SPDX-License-Identifier: Apache-2.0
#include "cli/check_surroundings.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <tuple>

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/text.hpp"
#include "device/recorder.hpp"
#include "files/output_file.hpp"

#include "tokens/sources.hpp"
#include "tokens/token_files.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/run/metrics_file.hpp"
#include "record/run/run_directory.hpp"

#include "session/host_memory.hpp"
#include "session/saver.hpp"
#include "session/scheduler.hpp"
#include "train/resume.hpp"

#include "deck/check.hpp"
#include "deck/survey.hpp"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

class Lookout {
 public:
  Lookout(const deck::Deck& deck, std::vector<Diagnostic>& findings)
      : deck_(deck), found_(findings) {}

  /// Adds the findings of `action`, at the places of their keys.
  template <class Action>
  void find(const std::string& key, const Action& action) {
    std::vector<Diagnostic> found;
    deck::find_at(key.c_str(), deck_.places, found, action);
    for (Diagnostic& one : found) add(std::move(one));
  }
  void add(Diagnostic one) {
    if (std::ranges::none_of(
            found_, [&](const Diagnostic& other) { return to_string(other) == to_string(one); }))
      found_.push_back(std::move(one));
  }
  void files(const std::string& key,
             const std::vector<std::string>& text,
             const std::vector<std::string>& tokens,
             tokens::TokenFormat format = tokens::TokenFormat::automatic) {
    if (!text.empty() && deck_.places.readable(key + ".text"))
      find(key + ".text", [&] { tokens::find_text(text, key + ".text"); });
    if (!tokens.empty() && deck_.places.readable(key + ".tokens"))
      find(key + ".tokens", [&] {
        tokens::examine_token_files(tokens::find_shards(tokens, key + ".tokens"), format);
      });
  }
  /// Returns the free bytes where `path` is or will be created; -1: unknown.
  std::int64_t directory(const std::string& key, const fs::path& path) {
    if (path.empty() || !deck_.places.readable(key))
      return -1;
    std::error_code problem;
    const fs::path whole = fs::absolute(path, problem);
    fs::path there = whole;
    while (!fs::exists(fs::symlink_status(there, problem)) && there.has_relative_path())
      there = there.parent_path();
    const auto refuse = [&](const std::string& why) {
      add({deck_.places.of(key), key,
           there == whole
               ? why
               : fmt::format("{} cannot be created: {} {}", path.string(), there.string(), why)});
    };
    if (!fs::exists(there, problem)) {
      refuse("is a link to a directory that does not exist");
      return -1;
    }
    if (!fs::is_directory(there, problem)) {
      refuse("is a file, not a directory");
      return -1;
    }
    if (::access(there.c_str(), W_OK | X_OK) != 0)
      refuse(fmt::format("cannot be written: {}", std::strerror(errno)));
    struct statvfs space {};
    return ::statvfs(there.c_str(), &space) == 0 ? static_cast<std::int64_t>(space.f_bavail) *
                                                       static_cast<std::int64_t>(space.f_frsize)
                                                 : -1;
  }

 private:
  const deck::Deck& deck_;
  std::vector<Diagnostic>& found_;
};

void look_for_data(const deck::JobConfig& config, Lookout& lookout) {
  const auto look = [&](const std::string& key, const batches::FilesConfig& files) {
    lookout.files(key, files.text, files.tokens, files.format);
  };
  look("data.train", config.data.train);
  for (std::size_t i = 0; i < config.data.train.mixture.size(); ++i)
    look(fmt::format("data.train.mixture[{}]", i), config.data.train.mixture[i]);
  look("data.validation", config.data.validation);
  for (std::size_t i = 0; i < config.evaluate.sets.size(); ++i) {
    const auto& set = config.evaluate.sets[i];
    const std::string key = fmt::format("evaluate.sets[{}]", i);
    lookout.files(key, set.text, set.tokens);
    if (!set.multiple_choice.empty())
      lookout.find(key + ".multiple_choice",
                   [&] { tokens::find_file(set.multiple_choice, key + ".multiple_choice"); });
  }
}

/// What would end a resume. The text may have moved, so the data are taken to be the same.
void look_at_checkpoint(const deck::Deck& deck, Lookout& lookout) {
  try {
    const auto newest = deck::checkpoint_to_resume(deck.config);
    if (!newest || newest->step >= deck.config.run.steps)
      return;
    const record::CheckpointFacts facts = record::read_facts(newest->directory);
    train::expect_allowed({newest->directory, facts}, deck::job_of(deck),
                          record::fact_of(facts.more, record::data_hash_fact));
    record::expect_model(newest->directory, facts.model, session::model_facts(deck.shape()));
  } catch (const UserError& error) {
    for (Diagnostic& one : deck.places.placed(error.findings())) lookout.add(std::move(one));
  } catch (const StorageError& error) {
    lookout.add({deck.places.of("run.directory"), "run.directory", error.what()});
  }
}

/// Space for all checkpoints that a run keeps, and the one that it is writing.
std::string space_note(const deck::JobConfig& config,
                       const plan::DeckPlan& plan,
                       std::int64_t free) {
  if (!config.checkpoint.regular() || free < 0)
    return "";
  const std::int64_t one = layout::snapshot_bytes(plan.plan, plan.slots) * plan.plan.all_ranks();
  const auto& [keep, every, milestones] =
      std::tie(config.checkpoint.keep, config.checkpoint.every_steps, config.checkpoint.keep_every);
  const std::int64_t steps = config.run.steps;
  // One is at the end; every_minutes adds some, whose number the clock decides.
  std::int64_t most = every > 0 ? (steps + every - 1) / every : 1;
  if (const std::int64_t newest =
          std::min(keep, steps) + 1 + (milestones > 0 ? steps / milestones : 0);
      keep > 0 && (newest < most || config.checkpoint.every_minutes > 0))
    most = newest;
  const double all = static_cast<double>(one) * static_cast<double>(most);
  return fmt::format(
      "space: {} per checkpoint, {} for all checkpoints that are kept; {} are free{}\n",
      bytes_text(one), bytes_text(all), bytes_text(free),
      all > static_cast<double>(free)
          ? ". Warning: this is not enough. Lower checkpoint.keep or choose another "
            "checkpoint.directory."
          : "");
}

std::string time_note(const deck::JobConfig& config) {
  std::string text;
  if (config.run.walltime.given())
    text = fmt::format("time:  the run stops after {} (run.walltime)\n",
                       duration_text(config.run.walltime.value->seconds));
  std::string warning;
  const double now = device::calendar_seconds();
  const session::SchedulerJob job = session::scheduler_job();
  std::optional<double> left = ask_for_seconds_left(job);
  if (const auto end = session::slurm_end(now, warning); end && !left)
    left = *end - now;
  if (left && std::isfinite(*left))
    text += fmt::format("time:  {} ends in {}\n", job.name.empty() ? "the job" : job.name,
                        duration_text(*left));
  if (!warning.empty())
    text += fmt::format("time:  warning: {}\n", warning);
  return text;
}

}  // namespace

std::string memory_note(const deck::Deck& deck,
                        const plan::DeckPlan& plan,
                        int ranks,
                        std::vector<Diagnostic>* findings) {
  if (plan.device != device::Kind::cpu)
    return "";
  const session::AvailableMemory room = session::available_memory();
  std::string text;
  std::vector<Diagnostic> found;
  for (std::size_t i = 0; i < plan.dtypes.size(); ++i) {
    const std::int64_t bytes = plan::whole_bytes(plan, i);
    std::string problem = session::memory_problem(room, bytes, ranks);
    if (!problem.empty()) {
      problem = fmt::format(
          "on this host {}. {}", problem,
          session::what_would_fit(
              {deck.config, deck.shape(), plan.plan, {plan.dtypes[i], plan.device}}, room, ranks));
      if (problem.find(session::memory_of_the_host) == std::string::npos)
        found.push_back({deck.places.of("model"), "model", problem});
    }
    text += fmt::format("memory: in {} a rank needs {}; {} allows {}{}\n", name(plan.dtypes[i]),
                        bytes_text(bytes), room.host_limit, bytes_text(room.host_bytes),
                        problem.empty() ? "" : ". Warning: " + problem);
  }
  if (findings != nullptr && found.size() == plan.dtypes.size())
    *findings = std::move(found);
  return text;
}

std::int64_t look_for_files(const deck::Deck& deck, std::vector<Diagnostic>& findings) {
  Lookout lookout(deck, findings);
  const deck::JobConfig& config = deck.config;
  look_for_data(config, lookout);
  std::int64_t free = lookout.directory("run.directory", config.run.directory);
  if (config.checkpoint.directory.empty())
    lookout.find("run.directory",
                 [&] { record::expect_own_checkpoints(config.run.directory, ""); });
  if (config.data.cache.given())
    lookout.directory("data.cache", *config.data.cache.value);
  if (!config.checkpoint.directory.empty()) {
    free = lookout.directory("checkpoint.directory", config.checkpoint.directory);
    lookout.find("checkpoint.directory", [&] {
      record::expect_place_of_checkpoints(config.run.directory, config.checkpoint.directory);
      record::expect_own_checkpoints(config.run.directory, config.checkpoint.directory);
    });
  }
  if (!config.record.metrics_file.empty())
    lookout.find("record.metrics_file", [&] {
      files::expect_place_for(config.record.metrics_file);
      record::expect_place_of_metrics(config.record.metrics_file);
    });
  return free;
}

std::string look_around(const deck::Deck& deck,
                        const plan::DeckPlan& plan,
                        std::int64_t free,
                        std::vector<Diagnostic>& findings) {
  Lookout lookout(deck, findings);
  const deck::JobConfig& config = deck.config;
  look_at_checkpoint(deck, lookout);
  const int ranks = plan.plan.all_ranks() / std::max(plan.hosts, 1);
  std::string copies_note = session::why_no_memory_copies(config, plan.plan.all_ranks());
  if (!copies_note.empty())
    copies_note = "note: " + copies_note + '\n';
  std::vector<Diagnostic> too_large;
  std::string idle;
  for (const auto& [place, key, reason] : deck::idle_keys(deck))
    idle += fmt::format("{}:{}:{}: warning: {} {}\n", place.file, place.line, place.column, key,
                        reason);
  std::string notes = idle + space_note(config, plan, free) +
                      memory_note(deck, plan, ranks, &too_large) + copies_note + time_note(config);
  for (Diagnostic& one : too_large) lookout.add(std::move(one));
  for (const auto& [text, remedy] :
       session::limit_problems_here("this host", plan.plan.all_ranks() - ranks))
    notes += fmt::format("limits: warning: {}: {}\n", text, remedy);
  return notes;
}

std::string not_checked(const deck::Deck& deck) {
  std::string text = "not checked: the content of ";
  text += deck.config.data.train.tokens.empty() ? "the text" : "the token files";
  return text +
         ", other hosts (their files, memory and network), GPUs, and how long a step takes\n";
}

}  // namespace trireme::cli
