// SPDX-License-Identifier: Apache-2.0
// The weights in a checkpoint of trireme: the fp32 masters, by the pieces that ranks wrote. And
// what a checkpoint states of a model.
#pragma once

#include <string>

#include "model/config.hpp"

#include "record/run/name_values.hpp"
#include "weights/stored_model.hpp"

namespace trireme::weights {

/// The state that holds weights, in every checkpoint and of every optimizer: its first slot.
inline constexpr const char* master_state = "master";

/// The model as a checkpoint states it, and what two checkpoints must share: the keys of the deck's
/// section `model` that no resume may change, by their describe(), as far as config_of() gives
/// them. A key beyond the sizes, `bias` and `tied_head` is stated where it differs from GPT-2's; so
/// a new key leaves the facts of known models as they are.
record::NameValues model_facts(const model::GptShape& shape);
/// The way back; absent facts take their defaults. Throws UserError when a size is missing, a fact
/// is no value of its key, or no model has these sizes.
model::GptShape shape_from(const record::NameValues& facts, const std::string& directory);

/// Those among `facts` about the origin of the first weights.
record::NameValues origin_facts(const record::NameValues& facts);

/// The checkpoint in `directory`, with the tokenizer that it holds; every rank file's frame is
/// compared with the manifest. Throws UserError.
StoredModel open_checkpoint(const std::string& directory);

/// That of step `step` in the run directory, or the newest (-1). Throws UserError when there is
/// none.
std::string checkpoint_in(const std::string& run_directory, std::int64_t step = -1);

}  // namespace trireme::weights
