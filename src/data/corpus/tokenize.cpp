// SPDX-License-Identifier: Apache-2.0
#include "corpus/tokenize.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/packing.hpp"
#include "base/stage_progress.hpp"
#include "files/descriptor.hpp"
#include "files/file_lock.hpp"
#include "files/new_directory.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "comm/control/together.hpp"

#include "text/json_file.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_index.hpp"

namespace trireme::corpus {
namespace {

namespace fs = std::filesystem;

/// What decides the bytes that come out: of the same words, the same corpus is made.
std::string fingerprint(const TokenizeRequest& request, const tokens::TextSources& sources) {
  return fmt::format(
      "text {:016x} tokenizer {:016x} field '{}' separator {:?} bad lines {} validation {} shard "
      "{}\n",
      sources.fingerprint(), request.tokenizer->hash(), request.format.field,
      request.format.separator, word(request.format.bad_lines), request.validation_fraction,
      request.shard_bytes);
}

enum class State { absent, unfinished, damaged, finished };

/// Whether nothing but the job and its lock is in the directory of what is unfinished: no unit.
bool holds_no_unit(const TokenizeRequest& request) {
  std::error_code problem;
  return std::ranges::all_of(
      fs::directory_iterator(request.parts(), problem), [](const auto& entry) {
        const std::string name = entry.path().filename().string();
        return name == "lock" || name == "job" || name.starts_with("job.");  // or being written
      });
}

/// What the output holds of this corpus. Throws UserError when something else is there.
State state_of(const TokenizeRequest& request, const std::string& job) {
  const std::string manifest_file = request.manifest(), job_file = request.parts("job");
  if (files::exists(job_file)) {
    const std::string found = files::read_whole(job_file);
    if (found == job)
      return State::unfinished;
    if (found.starts_with("text ") && holds_no_unit(request))
      return State::absent;  // as a start leaves it that found a mistake in its first text
    throw UserError(Place{request.parts()},
                    "an unfinished corpus of other text, of text with other modification times, of "
                    "another tokenizer or with other options is here: finish it as it was begun, "
                    "remove this directory and its shards, or give another --output");
  }
  if (!files::exists(manifest_file))
    return State::absent;
  if (!fs::is_regular_file(manifest_file))
    throw UserError(Place{manifest_file},
                    "this has the name of the manifest and is not a file: give another --output, "
                    "or remove it");
  const auto text = files::read_whole(manifest_file);
  const auto manifest = tokens::manifest_from_json(text, manifest_file);
  if (nlohmann::json::parse(text).value("made_of", "") != job)
    throw UserError(Place{manifest_file},
                    "a corpus of other text, of text with other modification times, of another "
                    "tokenizer or with other options is here: give another --output, or remove it");
  return is_whole(request, manifest) ? State::finished : State::damaged;
}

/// Throws UserError when files are there that a new corpus would replace, or none can be created.
void expect_place(const TokenizeRequest& request) {
  if (!fs::is_directory(request.parts()) || !holds_no_unit(request))
    files::expect_new_directory(request.parts());
  const fs::path output(request.output);
  const std::string front = output.filename().string() + "_";
  const std::string ending_of_index = tokens::index_of_shard("");
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(
           output.has_parent_path() ? output.parent_path() : fs::path("."), problem)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(ending_of_index))
      name.resize(name.size() - ending_of_index.size());
    const auto stem = name.substr(0, name.size() - std::min<std::size_t>(name.size(), 10));
    if (name.ends_with(".bin") && (stem == front + "train_" || stem == front + "val_"))
      throw UserError(Place{entry.path().string()},
                      "this file has the name of a shard, and no manifest says that it is one of "
                      "this corpus. Move it to another place, remove it, or give another --output");
  }
}

/// Throws UserError when another process has the lock.
void expect_free(files::Taken taken, const files::FileLock& lock, const TokenizeRequest& request) {
  if (taken == files::Taken::by_another)
    throw UserError(
        Place{request.parts()},
        fmt::format("another start of trireme tokenize ({}, or a rank of its job) is at "
                    "work on this corpus: wait for it, or stop it",
                    lock.holder("an unknown process")));
}

/// The directory of what is unfinished, made where it is missing, and its lock for rank 0.
files::FileLock locked_parts(const TokenizeRequest& request, const comm::World& world, Log& log) {
  files::make_directories(request.parts());
  files::FileLock lock(request.parts("lock"));
  auto taken = lock.take_alone();
  while (request.is_cache && taken == files::Taken::by_another) {
    log.info("data: waiting for another start ({}), which encodes the same text",
             lock.holder("an unknown process"));
    taken = lock.wait_alone();
    if (lock.in_place())
      break;
    files::make_directories(request.parts());  // that start has finished and removed it
    lock = files::FileLock(request.parts("lock"));
    taken = lock.take_alone();
  }
  expect_free(taken, lock, request);
  if (taken == files::Taken::not_supported)
    log.warning(
        "{} cannot be locked on this file system: do not start another tokenize with this --output "
        "before this one has ended",
        request.parts("lock"));
  lock.sign(world.host());
  return lock;
}

/// Number and manifest of each unit that a rank made.
using Results = std::vector<std::pair<std::size_t, std::string>>;

/// The manifest of a unit that an earlier start had finished; none if there is none.
std::optional<tokens::Manifest> done_before(const TokenizeRequest& request, std::size_t unit) {
  const std::string path = request.record_of(unit);
  if (!files::exists(path))
    return std::nullopt;
  std::optional<tokens::Manifest> found;
  try {
    found = tokens::manifest_from_json(files::read_whole(path), path);
  } catch (const UserError&) {
    return std::nullopt;
  }
  return is_whole(request, *found) ? found : std::nullopt;
}

/// This rank's units. Returns the number and the result of each, packed.
std::string make_units(const TokenizeRequest& request,
                       const std::vector<Unit>& units,
                       comm::World& world,
                       Log& log) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::int64_t done = 0, total = 0;
  for (auto i = static_cast<std::size_t>(world.rank()); i < units.size(); i += ranks)
    total += units[i].bytes();
  StageProgress progress(log);
  const auto report = [&](std::int64_t in_unit) {
    progress.report("encoding rank 0's part of the text", static_cast<double>(done + in_unit),
                    static_cast<double>(total));
  };
  report(0);
  Results results;
  for (auto i = static_cast<std::size_t>(world.rank()); i < units.size(); i += ranks) {
    auto result = done_before(request, i);
    if (result) {
      total -= units[i].bytes();
    } else {
      result = make_unit(units[i], i, request, report);
      files::write_staged(request.record_of(i), tokens::to_json(*result));
      done += units[i].bytes();
    }
    results.emplace_back(i, tokens::to_json(*result));
  }
  return pack(results);
}

tokens::Manifest manifest_of(const TokenizeRequest& request,
                             std::size_t units,
                             const std::vector<std::string>& all) {
  std::vector<tokens::Manifest> results(units);
  for (const std::string& bytes : all)
    for (const auto& [unit, result] : unpack<Results>(bytes))
      results.at(unit) = tokens::manifest_from_json(result, request.record_of(unit));
  tokens::Manifest manifest;
  manifest.tokenizer = request.tokenizer->hash();
  manifest.kind = request.tokenizer->kind();
  manifest.vocabulary = request.tokenizer->vocabulary();
  manifest.end_of_text = request.tokenizer->end_of_text();
  manifest.validation_fraction = request.validation_fraction;
  for (const tokens::Manifest& result : results) {
    manifest.train.insert(manifest.train.end(), result.train.begin(), result.train.end());
    manifest.validation.insert(manifest.validation.end(), result.validation.begin(),
                               result.validation.end());
    manifest.notes.add(result.notes);
  }
  return manifest;
}

/// Removes what killed starts left of shards that were written again.
void remove_drafts(const TokenizeRequest& request, const tokens::Manifest& manifest) {
  std::set<std::string> shards;
  for (const auto* set : {&manifest.train, &manifest.validation})
    for (const tokens::ManifestShard& shard : *set) {
      shards.insert(shard.file);
      shards.insert(tokens::index_of_shard(shard.file));
    }
  files::remove_abandoned(fs::path(request.output).parent_path().string(), shards);
}

/// What is left does no harm. The directory stays where other files have been put into it.
void remove_parts(const TokenizeRequest& request, std::size_t units) {
  std::vector<std::string> own{"job", "lock"};
  for (std::size_t i = 0; i < units; ++i)
    own.push_back(fs::path(request.record_of(i)).filename().string());
  files::remove_abandoned(request.parts(), {own.begin(), own.end()});
  std::error_code ignored;
  for (const std::string& name : own) fs::remove(request.parts(name), ignored);
  fs::remove(request.parts(), ignored);
}

void finish(const TokenizeRequest& request,
            const tokens::Manifest& manifest,
            std::size_t units,
            const std::string& job) {
  auto json = nlohmann::ordered_json::parse(tokens::to_json(manifest));
  json["made_of"] = job;
  files::write_staged(request.manifest(), json.dump(2) + "\n");
  remove_drafts(request, manifest);
  remove_parts(request, units);
}

/// Throws StorageError when the files are not those that the job began with.
void expect_unchanged(const TokenizeRequest& request,
                      const tokens::TextSources& sources,
                      const std::string& job) {
  if (fingerprint(request, sources) != job)
    throw StorageError(
        "file system", fmt::format("read {}", fmt::join(request.text, ", ")),
        fmt::format("a file was changed while it was encoded. Remove {} and its shards, and start "
                    "again when no program writes to the text",
                    request.parts()));
}

std::string sums_text(const std::vector<tokens::ManifestShard>& shards) {
  const tokens::ManifestShard sum = tokens::sum_of(shards);
  if (sum.tokens == 0)
    return "nothing";
  return fmt::format("{} tokens of {} documents in {} shards ({:.2f} bytes per token)", sum.tokens,
                     sum.documents, shards.size(),
                     static_cast<double>(sum.bytes) / static_cast<double>(sum.tokens));
}

void report(const TokenizeRequest& request, const tokens::Manifest& manifest, Log& log) {
  log.info("train: {}", sums_text(manifest.train));
  log.info("validation: {}", sums_text(manifest.validation));
  if (request.validation_fraction > 0 && manifest.validation.empty())
    log.warning(
        "the validation split is empty: there are too few documents for a fraction of {}. "
        "Use data.validation_fraction in the deck to split tokens instead",
        request.validation_fraction);
  log.info("the shards are {}_*.bin, and {} describes them", request.output, request.manifest());
}

}  // namespace

Corpus tokenize(TokenizeRequest request, comm::World& world, Log& log) {
  std::string job, plan;
  std::optional<files::FileLock> lock;
  tokens::TextSources sources;  // of rank 0
  comm::on_first_rank(world, [&] {
    sources = tokens::find_text(request.text, request.key);
    job = fingerprint(request, sources);
    if (request.is_cache)
      request.output += fmt::format("-{:016x}", hash_bytes(job));
    const State state = state_of(request, job);
    if (state == State::finished)
      return;
    tokens::report_sources(sources, request.format.field, request.key, log);
    if (state == State::damaged)
      log.warning(
          "{}: a shard is missing, or has another size or header than is stated here; encoding the "
          "text again",
          request.manifest());
    else if (state == State::absent && !request.is_cache)  // a cache's names are of its text
      expect_place(request);
    lock.emplace(locked_parts(request, world, log));
    if (state_of(request, job) == State::finished) {  // by another start, a moment ago
      remove_parts(request, 0);
      return;
    }
    plan = pack(units_of(sources, request));
    files::write_staged(request.parts("job"), job);
    expect_free(lock->share(), *lock, request);
  });
  request.output = world.broadcast(std::move(request.output), 0);
  plan = world.broadcast(std::move(plan), 0);
  if (!plan.empty()) {
    comm::together(world, [&] {  // a rank that outlives its job keeps the next start out
      if (world.rank() == 0)
        return;
      lock.emplace(request.parts("lock"));
      expect_free(lock->share(), *lock, request);
    });
    const std::vector<Unit> units = unpack<std::vector<Unit>>(plan);
    std::string mine;
    comm::together(world, [&] { mine = make_units(request, units, world, log); });
    const auto all = world.gather(mine);
    comm::on_first_rank(world, [&] {
      const auto manifest = manifest_of(request, units.size(), all);
      if (manifest.train.empty() && manifest.validation.empty())
        text::refuse_key("", request.key, "no text in any of the entries");
      expect_unchanged(request, sources, job);
      finish(request, manifest, units.size(), job);
    });
  }
  const std::string manifest =
      comm::from_first_rank(world, [&] { return files::read_whole(request.manifest()); });
  Corpus corpus{request.output, tokens::manifest_from_json(manifest, request.manifest()),
                !plan.empty()};
  if (corpus.is_new || !request.is_cache)
    corpus.manifest.notes.say(request.format, request.key, log);
  if (!request.is_cache) {
    if (!corpus.is_new)
      log.info("this corpus is finished already");
    report(request, corpus.manifest, log);
  }
  return corpus;
}

}  // namespace trireme::corpus
