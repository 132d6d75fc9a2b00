// SPDX-License-Identifier: Apache-2.0
// Answers multiple-choice questions with the choice that a model finds most likely.
//
// The loss of a choice is the sum of its tokens' losses; the first token is predicted by the last
// token of the context. The answer is the choice with the smallest sum (`sum`: acc of
// lm-evaluation-harness), the smallest sum per token (`per_token`, as in llm.c and nanochat) or per
// character of the choice without spaces before it (`per_character`: acc_norm of
// lm-evaluation-harness). Of equal choices the first is the answer. A question that is longer than
// the context loses its beginning.
//
// Ranks share the questions (share_out.hpp). A row's losses do not depend on other rows and are
// added in the order of the tokens, so all numbers have the same bits on any number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/control/interruption.hpp"
#include "comm/control/world.hpp"

#include "batches/multiple_choice.hpp"

#include "inference/scorer.hpp"

namespace trireme::inference {

struct Accuracy {
  std::int64_t right = 0, of = 0;

  [[nodiscard]] double value() const {
    return static_cast<double>(right) / static_cast<double>(of);
  }
  /// sqrt(p (1 - p) / (n - 1)), as of the mean of n zeros and ones; NaN for one question.
  [[nodiscard]] double standard_error() const;
};

struct ChoiceScores {
  Accuracy sum, per_token, per_character;  ///< the last is empty where lengths are not known
};

/// Collective; all ranks hold the same questions. Throws comm::Interrupted when `interrupts` is true
/// on any rank.
ChoiceScores multiple_choice(Scorer& scorer,
                             const std::vector<batches::Question>& questions,
                             comm::World& world,
                             const comm::Wanted& interrupts = {});

/// The row that scores a choice after its context, cut to the newest tokens.
Row row_of(const std::vector<std::int32_t>& context,
           const std::vector<std::int32_t>& choice,
           std::int64_t longest);

}  // namespace trireme::inference
