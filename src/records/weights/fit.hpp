// SPDX-License-Identifier: Apache-2.0
// Compares stored weights with the model that a deck describes, and reports all differences at
// once, each with the deck's key and the file that differs.
#pragma once

#include <vector>

#include "base/error.hpp"

#include "model/config.hpp"

#include "text/tokenizer.hpp"

#include "weights/config.hpp"
#include "weights/stored_model.hpp"

namespace trireme::weights {

struct ExpectedModel {
  model::GptShape shape;
  InitialRows rows = InitialRows::exact;
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< of the data; null: unknown
};

/// The differences in sizes, parts, biases and head; in rows of the embeddings, as far as `rows`
/// does not allow them; and, if both sides have a tokenizer, in the bytes of any token.
std::vector<Diagnostic> find_differences(const StoredModel& stored, const ExpectedModel& expected);

}  // namespace trireme::weights
