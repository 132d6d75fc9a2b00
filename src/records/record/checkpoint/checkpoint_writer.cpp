// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/checkpoint_writer.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "base/threads.hpp"
#include "device/recorder.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/manifest.hpp"

namespace trireme::record {

namespace {

/// Combines the ranks' parts. States are numbered in the order of their names.
Manifest assemble(const layout::Plan& plan,
                  const CheckpointFacts& facts,
                  const std::vector<Part>& parts) {
  Manifest manifest;
  manifest.facts = facts;
  for (const layout::Parameter& parameter : plan.parameters())
    manifest.parameters.push_back({parameter.name, parameter.shape, parameter.elements()});
  for (const Part& part : parts)
    for (const SavedState& state : part.states)
      if (std::ranges::find(manifest.states, state) == manifest.states.end())
        manifest.states.push_back(state);
  std::ranges::sort(manifest.states, {}, &SavedState::name);
  for (std::size_t s = 1; s < manifest.states.size(); ++s)
    TRIREME_EXPECT(manifest.states[s].name != manifest.states[s - 1].name,
                   "state {} in two dtypes on different ranks", manifest.states[s].name);
  for (const Part& part : parts) {
    manifest.file_bytes.push_back(part.file_bytes);
    manifest.file_frames.push_back(part.frame);
    for (Piece piece : part.pieces) {
      const auto found = std::ranges::find(manifest.states, part.states[piece.state]);
      piece.state = static_cast<std::uint32_t>(found - manifest.states.begin());
      manifest.pieces.push_back(piece);
    }
  }
  const std::string problem = manifest.complete();
  TRIREME_EXPECT(problem.empty(), "{}", problem);
  return manifest;
}

}  // namespace

void CheckpointWriter::start_work(std::function<void(const std::stop_token&)> work) {
  std::packaged_task<void(const std::stop_token&)> task(std::move(work));
  auto outcome = task.get_future();
  thread_ = start_thread<std::jthread>("checkpoint", std::move(task));
  outcome_ = std::move(outcome);
}

void CheckpointWriter::start_files(const CheckpointFacts& facts, std::vector<RankSlabs> files) {
  TRIREME_EXPECT(!under_way(), "step {} is still being written", facts_.step);
  std::vector<std::string> warnings;
  comm::on_first_rank(world_, [&] { warnings = prepare_temporary(run_directory_, facts.step); });
  facts_ = facts;
  if (retention_.milestone(facts.step))
    facts_.more.emplace_back(milestone_fact, "true");
  files_ = std::move(files);
  const std::string checkpoints = checkpoints_of(run_directory_) + "/";
  saved_ = {};
  warn_once(std::move(warnings));
  saved_.directory = checkpoints + checkpoint_name(facts.step);
  const std::string directory = checkpoints + temporary_name(facts.step) + "/";
  start_work([this, directory](const std::stop_token& stop) {
    parts_.clear();
    for (const auto& [rank, slabs] : files_)
      parts_.push_back(write_rank_file(directory + rank_file(rank), rank, plan_, slabs, stop));
  });
  stage_ = Stage::writing;
}

std::optional<SavedCheckpoint> CheckpointWriter::advance() {
  TRIREME_EXPECT(under_way(), "no checkpoint was started");
  const Stage stage = std::exchange(stage_, Stage::idle);  // idle also if this stage fails
  try {
    comm::together(world_, [&] {
      if (outcome_.valid())
        outcome_.get();
    });
    if (stage == Stage::committing)
      return saved_;
    gather_parts();
  } catch (...) {
    if (world_.rank() == 0)
      remove_temporary(run_directory_, facts_.step);
    throw;
  }
  stage_ = Stage::committing;
  return std::nullopt;
}

SavedCheckpoint CheckpointWriter::finish() {
  for (;;)
    if (auto saved = advance())
      return *std::move(saved);
}

void CheckpointWriter::gather_parts() {
  std::vector<Part> parts;
  for (const std::string& text : world_.gather(pack(parts_)))
    for (Part& part : unpack<std::vector<Part>>(text)) parts.push_back(std::move(part));
  std::ranges::sort(parts, {}, &Part::rank);
  for (const Part& part : parts) {
    saved_.bytes += part.file_bytes;
    saved_.seconds = std::max(saved_.seconds, part.seconds);
  }
  comm::on_first_rank(world_, [&] { expect_finite(parts); });
  if (world_.rank() == 0)
    start_work([this, parts = std::move(parts)](const std::stop_token&) { commit(parts); });
}

void CheckpointWriter::expect_finite(const std::vector<Part>& parts) const {
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    if (const Part& part = parts[rank]; part.bad_state >= 0)
      throw UserError(
          fmt::format("step {}: {} of {} is not finite on rank {}, so no checkpoint was written: "
                      "the older ones in {} are as they were; a lower optimizer.learning_rate or "
                      "optimizer.clip_norm may help, or run.precision: fp32 if it is bf16",
                      facts_.step, part.states[static_cast<std::size_t>(part.bad_state)].name,
                      plan_.parameter(static_cast<ParameterIndex>(part.bad_parameter)).name, rank,
                      checkpoints_of(run_directory_)));
}

void CheckpointWriter::commit(const std::vector<Part>& parts) {
  const double begin = device::steady_seconds();
  write_manifest(checkpoints_of(run_directory_) + "/" + temporary_name(facts_.step),
                 assemble(plan_, facts_, parts));
  if (std::string problem = commit_temporary(run_directory_, facts_.step); !problem.empty())
    warn_once({std::move(problem)});
  saved_.seconds += device::steady_seconds() - begin;
  warn_once(prune(run_directory_, facts_.step, retention_));
}

void CheckpointWriter::warn_once(std::vector<std::string> warnings) {
  for (std::string& warning : warnings)
    if (warned_.insert(warning).second)
      saved_.warnings.push_back(std::move(warning));
}

}  // namespace trireme::record
