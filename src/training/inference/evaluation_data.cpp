// SPDX-License-Identifier: Apache-2.0
#include "inference/evaluation_data.hpp"

#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"

#include "tokens/documents.hpp"
#include "tokens/sources.hpp"
#include "tokens/token_files.hpp"

namespace trireme::inference {
namespace {

using Tokens = std::vector<std::int32_t>;

/// What the first rank read of one set, to broadcast to all ranks.
struct Found {
  Tokens text;
  std::vector<batches::Question> questions;

  auto fields() { return std::tie(text, questions); }
};

void expect_two(std::int64_t tokens, const std::string& key) {
  if (tokens < 2)
    throw UserError(
        {Diagnostic{{}, key, fmt::format("{} tokens are too few to predict one", tokens)}});
}

Tokens text_of(const session::EvaluationSet& set,
               const std::string& key,
               const text::Tokenizer* tokenizer,
               Log& log) {
  TRIREME_EXPECT(tokenizer != nullptr, "text to evaluate, no tokenizer");
  const auto format =
      tokens::text_format(set.field, "auto", tokens::BadLines::stop, *tokenizer, key);
  const auto sources = tokens::find_text(set.text, key);
  tokens::report_sources(sources, set.field, key, log);
  Tokens tokens = tokens::encode_text(sources.files, format, *tokenizer);
  expect_two(std::ssize(tokens), key);
  return tokens;
}

}  // namespace

std::vector<EvaluationData> read_evaluation_data(const std::vector<session::EvaluationSet>& sets,
                                                 const KeyOf& key_of,
                                                 const model::GptShape& shape,
                                                 const text::Tokenizer* tokenizer,
                                                 comm::World& world,
                                                 Log& log) {
  std::vector<Diagnostic> findings;
  const auto attempt = [&](bool wanted, const auto& action) {
    try {
      if (wanted)
        action();
    } catch (const UserError& mistake) {
      findings.insert(findings.end(), mistake.findings().begin(), mistake.findings().end());
    }
  };
  const bool compares = tokenizer != nullptr && tokenizer->kind() != "bytes";
  std::vector<tokens::TokenFiles> files(sets.size());
  for (std::size_t i = 0; i < sets.size(); ++i)
    attempt(!sets[i].tokens.empty(), [&] {
      files[i] = tokens::check_token_files(
          sets[i].tokens, key_of(i, "tokens"),
          {.vocabulary = shape.vocabulary, .tokenizer = compares ? tokenizer->hash() : 0}, world);
      std::int64_t tokens = 0;
      for (const tokens::TokenFile& file : files[i].files) tokens += file.tokens;
      expect_two(tokens, key_of(i, "tokens"));
    });
  auto found = comm::from_first_rank(world, [&] {
    std::vector<Found> all;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const session::EvaluationSet& set = sets[i];
      TRIREME_EXPECT(tokenizer != nullptr || !set.is_text(), "text to evaluate, no tokenizer");
      Found& one = all.emplace_back();
      attempt(!set.text.empty(),
              [&] { one.text = text_of(set, key_of(i, "text"), tokenizer, log); });
      attempt(!set.multiple_choice.empty(), [&] {
        tokens::find_file(set.multiple_choice, key_of(i, "multiple_choice"));
        one.questions =
            batches::read_questions(set.multiple_choice, {.format = set.format,
                                                          .vocabulary = shape.vocabulary,
                                                          .context = shape.context,
                                                          .tokenizer = tokenizer});
      });
    }
    if (!findings.empty())
      throw UserError(std::move(findings));
    return all;
  });
  std::vector<EvaluationData> all(sets.size());
  for (std::size_t i = 0; i < sets.size(); ++i) {
    comm::together(world, [&] {
      if (!files[i].files.empty())
        all[i].stream = tokens::open_token_files(files[i], shape.vocabulary);
      else if (!found[i].text.empty())
        all[i].stream = std::make_unique<tokens::HeldTokens>(std::move(found[i].text),
                                                             shape.vocabulary, "text");
    });
    all[i].questions = std::move(found[i].questions);
  }
  return all;
}

}  // namespace trireme::inference
