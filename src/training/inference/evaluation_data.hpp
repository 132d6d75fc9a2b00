// SPDX-License-Identifier: Apache-2.0
// Rank 0 reads and checks the data on which a model is evaluated: text, tokens, or questions.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "model/config.hpp"

#include "comm/control/world.hpp"

#include "batches/multiple_choice.hpp"
#include "text/tokenizer.hpp"
#include "tokens/token_stream.hpp"

#include "session/evaluate_config.hpp"

namespace trireme::inference {

/// The name of a key, such as "text", of a set, in findings.
using KeyOf = std::function<std::string(std::size_t set, const std::string& key)>;

struct EvaluationData {
  std::unique_ptr<tokens::TokenStream> stream;  ///< null: none
  std::vector<batches::Question> questions;
};

/// Collective; one item per set. `tokenizer`: null if it is not known; then no set is text. Throws
/// UserError with the findings about all sets, and StorageError. Logs which files were left out.
std::vector<EvaluationData> read_evaluation_data(const std::vector<session::EvaluationSet>& sets,
                                                 const KeyOf& key_of,
                                                 const model::GptShape& shape,
                                                 const text::Tokenizer* tokenizer,
                                                 comm::World& world,
                                                 Log& log);

}  // namespace trireme::inference
