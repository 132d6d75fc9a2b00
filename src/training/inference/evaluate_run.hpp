// SPDX-License-Identifier: Apache-2.0
// `trireme evaluate`: a trained model's loss on text or tokens, and its answers to multiple choice,
// on any number of ranks with the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "inference/evaluation_data.hpp"
#include "inference/loaded_model.hpp"
#include "inference/multiple_choice.hpp"
#include "inference/scorer.hpp"

namespace trireme::inference {

struct EvaluateRequest {
  ModelSource source;
  EvaluationSource data;
};

struct Evaluated {
  std::string title;  ///< LoadedModel::title()
  std::string path;
  std::optional<std::int64_t> step;  ///< a checkpoint's
  std::optional<TokenLoss> loss;
  std::optional<ChoiceScores> choices;
};

/// Collective. The first rank reads text and questions, and examines token files; all findings
/// about them are thrown at once. Throws UserError, StorageError, and what load_model() throws.
Evaluated evaluate_run(const EvaluateRequest& request, comm::World& world, Log& log);

/// For people; and as one JSON object, in which what is not known is null.
std::string evaluation_table(const Evaluated& evaluated);
std::string evaluation_json(const Evaluated& evaluated);

}  // namespace trireme::inference
