// SPDX-License-Identifier: Apache-2.0
#include "inference/multiple_choice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"

namespace trireme::inference {
namespace {

/// One choice of one question.
struct Judged {
  std::size_t question, choice;
  std::size_t place;  ///< among all choices of all questions
};

/// The index of the smallest value; of equal values, the lowest index.
std::int64_t smallest(const std::vector<double>& values) {
  return std::ranges::min_element(values) - values.begin();
}

/// The row of each of `some`, all of one width.
std::vector<Row> rows_of(const std::vector<batches::Question>& questions,
                         std::span<const Judged> some,
                         std::int64_t longest) {
  std::vector<Row> rows;
  for (const Judged& one : some)
    rows.push_back(row_of(questions[one.question].context,
                          questions[one.question].choices[one.choice], longest));
  return rows;
}

/// The sums of all choices' losses, in order; on all ranks.
std::vector<double> sums_of(Scorer& scorer,
                            const std::vector<batches::Question>& questions,
                            comm::World& world,
                            const comm::Wanted& interrupts) {
  const std::int64_t longest = scorer.shape().context;
  std::map<std::int64_t, std::vector<Judged>> by_width;
  std::size_t count = 0;
  for (std::size_t q = 0; q < questions.size(); ++q)
    for (std::size_t c = 0; c < questions[q].choices.size(); ++c) {
      const auto tokens =
          std::ssize(questions[q].context) + std::ssize(questions[q].choices[c]) - 1;
      by_width[width_of(std::min(tokens, longest), longest)].push_back({q, c, count++});
    }
  std::vector<std::span<const Judged>> groups;  // what is computed at once
  for (const auto& [width, all] : by_width) {
    const auto at_once = static_cast<std::size_t>(scorer.rows_at_once(width));
    for (std::size_t begin = 0; begin < all.size(); begin += at_once)
      groups.push_back(std::span(all).subspan(begin, std::min(at_once, all.size() - begin)));
  }
  // Every sum is one rank's and 0 on the others, so that their integers add up to it.
  std::vector<std::int64_t> words(count);
  const auto pass = [&](std::int64_t group, bool counts) {
    const std::span<const Judged> some = groups[static_cast<std::size_t>(group)];
    const auto losses = scorer.losses(rows_of(questions, some, longest));
    for (std::size_t i = 0; counts && i < some.size(); ++i) {
      double sum = 0;
      for (const float loss : losses[i]) sum += static_cast<double>(loss);
      words[some[i].place] = std::bit_cast<std::int64_t>(sum);
    }
  };
  share_out(scorer.passes(), std::ssize(groups), world, pass, interrupts);
  world.sum(words);
  std::vector<double> sums(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] = std::bit_cast<double>(words[i]);
  return sums;
}

}  // namespace

double Accuracy::standard_error() const {
  if (of < 2)
    return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(value() * (1 - value()) / static_cast<double>(of - 1));
}

Row row_of(const std::vector<std::int32_t>& context,
           const std::vector<std::int32_t>& choice,
           std::int64_t longest) {
  TRIREME_EXPECT(!context.empty() && !choice.empty() && std::ssize(choice) <= longest,
                 "{} tokens after {}, in a context of {}", choice.size(), context.size(), longest);
  std::vector<std::int32_t> all = context;
  all.insert(all.end(), choice.begin(), choice.end());
  const auto cut = std::max<std::ptrdiff_t>(0, std::ssize(all) - 1 - longest);
  all.erase(all.begin(), all.begin() + cut);
  Row row{{all.begin(), all.end() - 1}, {all.begin() + 1, all.end()}};
  std::fill(row.targets.begin(), row.targets.end() - std::ssize(choice), -1);
  return row;
}

ChoiceScores multiple_choice(Scorer& scorer,
                             const std::vector<batches::Question>& questions,
                             comm::World& world,
                             const comm::Wanted& interrupts) {
  const std::vector<double> sums = sums_of(scorer, questions, world, interrupts);
  ChoiceScores scores;
  std::size_t place = 0;
  for (const batches::Question& question : questions) {
    std::vector<double> sum, per_token, per_character;
    for (std::size_t c = 0; c < question.choices.size(); ++c) {
      const double nats = sums[place++];
      if (!std::isfinite(nats))
        throw UserError("the model's output is not a number: its training has diverged");
      sum.push_back(nats);
      per_token.push_back(nats / static_cast<double>(question.choices[c].size()));
      if (!question.lengths.empty())
        per_character.push_back(
            nats / static_cast<double>(std::max<std::int64_t>(1, question.lengths[c])));
    }
    const auto count = [&](Accuracy& accuracy, const std::vector<double>& values) {
      ++accuracy.of;
      accuracy.right += smallest(values) == question.label ? 1 : 0;
    };
    count(scores.sum, sum);
    count(scores.per_token, per_token);
    if (!per_character.empty())
      count(scores.per_character, per_character);
  }
  return scores;
}

}  // namespace trireme::inference
