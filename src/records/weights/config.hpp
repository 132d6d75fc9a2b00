// SPDX-License-Identifier: Apache-2.0
// The deck's choices about first weights: the values of run.initial_rows.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

namespace trireme::weights {

/// What may be done where an embedding, or a head of its own, has another number of rows than the
/// model. Rows of the vocabulary are added at its end, each the mean of the rows that are there: so
/// the probability of all new tokens together is at most their share of the vocabulary, where rows
/// of zeros could take nearly all of it (Source: Hewitt 2021, "Initializing new word embeddings for
/// pretrained language models"). Positions that are added get the values that the seed gives them.
enum class InitialRows : std::uint8_t { exact, pad, cut, fit };

constexpr bool may_pad(InitialRows rows) {
  return rows == InitialRows::pad || rows == InitialRows::fit;
}
constexpr bool may_cut(InitialRows rows) {
  return rows == InitialRows::cut || rows == InitialRows::fit;
}

}  // namespace trireme::weights

template <>
struct trireme::EnumNames<trireme::weights::InitialRows> {
  using enum weights::InitialRows;
  static constexpr std::pair<weights::InitialRows, const char*> table[] = {
      {exact, "exact"}, {pad, "pad"}, {cut, "cut"}, {fit, "fit"}};
};
