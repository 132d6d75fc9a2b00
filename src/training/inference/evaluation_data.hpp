// SPDX-License-Identifier: Apache-2.0
// Reads and checks the data on which a model is evaluated: text, tokens, or questions. Rank 0
// reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config.hpp"

#include "comm/control/world.hpp"

#include "batches/multiple_choice.hpp"
#include "text/tokenizer.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::inference {

/// Files, by the names that findings have for them.
struct EvaluationSource {
  std::vector<std::string> text, tokens;  ///< at most one of the two
  std::string field;                      ///< of text: JSON lines
  std::string multiple_choice;            ///< a file; empty: none
  batches::ChoiceFormat format = batches::ChoiceFormat::hellaswag;
  std::string text_key = "--text", tokens_key = "--tokens", choice_key = "--multiple-choice";

  /// Whether it is read by way of a tokenizer.
  [[nodiscard]] bool is_text() const {
    return !text.empty() || (!multiple_choice.empty() && format == batches::ChoiceFormat::jsonl);
  }
};

struct EvaluationData {
  std::unique_ptr<tokens::TokenStream> stream;  ///< null: none
  std::vector<batches::Question> questions;
};

/// Collective; one item for each source. `tokenizer` is null where it is not known, in which case
/// no source is text. Throws UserError with the findings about all sources, StorageError.
std::vector<EvaluationData> read_evaluation_data(const std::vector<EvaluationSource>& sources,
                                                 const model::GptShape& shape,
                                                 const text::Tokenizer* tokenizer,
                                                 comm::World& world);

}  // namespace trireme::inference
