// SPDX-License-Identifier: Apache-2.0
// Values of the deck key run.initial_rows.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::weights {

/// How to handle stored embeddings, or a stored untied head, with another number of rows than the
/// model. New rows of the vocabulary are added at its end, each the mean of the existing rows: the
/// total probability of the new tokens is then at most their share of the vocabulary, whereas rows
/// of zeros could receive nearly all of it (Source: Hewitt 2021, "Initializing new word embeddings
/// for pretrained language models"). New positions get the seed's initial values.
enum class InitialRows : std::uint8_t { exact, pad, cut, fit };

constexpr bool may_pad(InitialRows rows) {
  return rows == InitialRows::pad || rows == InitialRows::fit;
}
constexpr bool may_cut(InitialRows rows) {
  return rows == InitialRows::cut || rows == InitialRows::fit;
}

}  // namespace trireme::weights
