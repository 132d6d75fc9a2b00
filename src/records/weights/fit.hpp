// SPDX-License-Identifier: Apache-2.0
// Whether stored weights are those of the model that a deck describes: all differences at once,
// each at the deck's key and with the file that differs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "model/config.hpp"

#include "text/tokenizer.hpp"

#include "weights/config.hpp"
#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Where a deck's key was given ("model.layers").
using PlaceOf = std::function<Place(const std::string& key)>;

struct Wanted {
  model::GptShape shape;
  InitialRows rows = InitialRows::exact;
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< of the data; null: not known
  PlaceOf place_of;
};

/// Layers, heads, channels, the parts, biases, head; rows of the embeddings, as `rows` allows; and
/// of the tokenizers where both sides have one, the bytes of every token: rows of another's tokens
/// would mean something else.
std::vector<Diagnostic> misfits(const StoredModel& stored, const Wanted& wanted);

}  // namespace trireme::weights
