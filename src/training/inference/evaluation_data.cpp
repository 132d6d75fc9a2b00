// SPDX-License-Identifier: Apache-2.0
#include "inference/evaluation_data.hpp"

#include <string_view>
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

/// What the first rank read of one source, for all.
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

Tokens text_of(const EvaluationSource& source, const text::Tokenizer& tokenizer) {
  const auto format =
      tokens::text_format(source.field, "auto", tokens::BadLines::stop, tokenizer, source.text_key);
  Tokens tokens = tokens::encode_text(source.text, format, tokenizer, source.text_key);
  expect_two(std::ssize(tokens), source.text_key);
  return tokens;
}

}  // namespace

std::vector<EvaluationData> read_evaluation_data(const std::vector<EvaluationSource>& sources,
                                                 const model::GptShape& shape,
                                                 const text::Tokenizer* tokenizer,
                                                 comm::World& world) {
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
  std::vector<tokens::TokenFiles> files(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i)
    attempt(!sources[i].tokens.empty(), [&] {
      files[i] = tokens::check_token_files(
          sources[i].tokens, sources[i].tokens_key,
          {.vocabulary = shape.vocabulary, .tokenizer = compares ? tokenizer->hash() : 0}, world);
      std::int64_t tokens = 0;
      for (const tokens::TokenFile& file : files[i].files) tokens += file.tokens;
      expect_two(tokens, sources[i].tokens_key);
    });
  auto found = comm::from_first_rank(world, [&] {
    std::vector<Found> all;
    for (const EvaluationSource& source : sources) {
      TRIREME_EXPECT(tokenizer != nullptr || !source.is_text(), "text to evaluate, no tokenizer");
      Found& one = all.emplace_back();
      attempt(!source.text.empty(), [&] { one.text = text_of(source, *tokenizer); });
      attempt(!source.multiple_choice.empty(), [&] {
        tokens::find_shards({source.multiple_choice}, source.choice_key);
        one.questions =
            batches::read_questions(source.multiple_choice, {.format = source.format,
                                                             .vocabulary = shape.vocabulary,
                                                             .context = shape.context,
                                                             .tokenizer = tokenizer});
      });
    }
    if (!findings.empty())
      throw UserError(std::move(findings));
    return all;
  });
  std::vector<EvaluationData> all(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
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
