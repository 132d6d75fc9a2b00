// SPDX-License-Identifier: Apache-2.0
// What a run may change when it continues from a checkpoint, and how it is reported.
//
// A checkpoint carries the deck, the hash of the data and the identity of the run that wrote it.
// Each key of the deck has a rule, next to its help (base/key.hpp): free keys may change and are
// shown; others make it another experiment and need an entry in run.allow_changes; the rest
// never change, because the state in the checkpoint would mean nothing.
//
// 1. Changes are refused before anything of the run is modified, and all are reported at once.
// 2. Data are compared by their hash, not by their names: text that was moved is the same, text
//    that was edited under its old name is not.
// 3. So is the tokenizer: a moved one is the same, and a different one is always refused.
// 4. What a checkpoint does not state is not compared: an imported model has no deck and no data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/run_directory.hpp"

#include "session/job.hpp"
#include "session/saver.hpp"

namespace trireme::train {

using record::data_hash_fact, record::run_id_fact, record::data_position_fact;
using record::tokenizer_fact, record::unknown_tokenizer;
/// NoiseScale::packed(), of runs that measure it.
inline constexpr const char* noise_scale_fact = "noise_scale";
/// Optimizer::skipped_in_a_row() on rank 0; absent: 0.
inline constexpr const char* skipped_fact = "skipped_in_a_row";

/// The value of tokenizer_fact for a run.
std::string tokenizer_text(const session::Job& job);

using record::fact_of;

using Resumed = session::Saver::Resumed;

/// Throws UserError with all changes that the deck does not allow. `data_hash`: of the data now.
void expect_allowed(const Resumed& resumed, const session::Job& job, const std::string& data_hash);

/// The id of the run: that of the checkpoint, or a new one if it does not resume. Throws UserError
/// when the checkpoint is another run's. Rank 0.
std::string choose_run_id(const record::RunDirectory& directory,
                          const std::optional<Resumed>& resumed);

/// Consecutive skipped steps of which the checkpoint's is the last.
std::int64_t skipped_in_a_row(const Resumed& resumed);

/// What changed, as lines of a table, for people; empty when nothing did. One line where the
/// checkpoint does not state it.
std::vector<std::string> change_table(const Resumed& resumed,
                                      const session::Job& job,
                                      const std::string& data_hash);

/// If the deck names weights, which only a new run reads: a sentence that states the weights with
/// which the run began. Else empty.
std::string unread_weights(const Resumed& resumed, const session::Job& job);

/// A sentence when the learning rate jumps between the last step of the checkpoint and the next
/// because its schedule follows run.steps; else nothing.
std::string rate_jump(const Resumed& resumed, const session::Job& job);

}  // namespace trireme::train
