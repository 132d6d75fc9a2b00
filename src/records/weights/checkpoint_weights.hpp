// SPDX-License-Identifier: Apache-2.0
// Reads the fp32 master weights of a trireme checkpoint from the ranks' files, and translates
// between a model's shape and the facts that a checkpoint states about it.
#pragma once

#include <string>

#include "model/config.hpp"

#include "record/run/name_values.hpp"
#include "weights/stored_model.hpp"

namespace trireme::weights {

/// The state that holds weights, in every checkpoint and of every optimizer: its first slot.
inline constexpr const char* master_state = "master";

/// The model's facts, which two checkpoints of a run must share: the keys of the deck section
/// `model` that no resume may change. Keys other than the sizes, `bias` and `tied_head` are
/// included only if they differ from GPT-2's, so new keys do not change the facts of known models.
record::NameValues model_facts(const model::GptShape& shape);
/// The inverse of model_facts(). Absent facts take their defaults. Throws UserError if a size is
/// missing, a fact is not a valid value of its key, or no model can have these sizes.
model::GptShape shape_from(const record::NameValues& facts, const std::string& directory);

/// Facts for CheckpointFacts::more about the roles of tokens.
record::NameValues role_facts(const Roles& roles);

/// Those of `facts` about the initial weights' origin and roles; they remain with the run.
record::NameValues origin_facts(const record::NameValues& facts);

/// Opens a checkpoint and its tokenizer, and checks every rank file's frame. Throws UserError.
StoredModel open_checkpoint(const std::string& directory);

/// The directory of checkpoint `step`, or of the newest (-1). Throws UserError if there is none.
std::string checkpoint_in(const std::string& run_directory, std::int64_t step = -1);

}  // namespace trireme::weights
