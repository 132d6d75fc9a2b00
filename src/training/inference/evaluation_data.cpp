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

class Looking {
 public:
  Looking(const model::GptShape& shape, const text::Tokenizer* tokenizer)
      : shape_(shape), tokenizer_(tokenizer) {}

  Found look(const EvaluationSource& source) {
    TRIREME_EXPECT(tokenizer_ != nullptr || !source.is_text(), "text to evaluate, no tokenizer");
    Found found;
    attempt(!source.text.empty(), [&] { found.text = text_of(source); });
    attempt(!source.multiple_choice.empty(), [&] {
      tokens::find_shards({source.multiple_choice}, source.choice_key);
      found.questions =
          batches::read_questions(source.multiple_choice, {.format = source.format,
                                                           .vocabulary = shape_.vocabulary,
                                                           .context = shape_.context,
                                                           .tokenizer = tokenizer_});
    });
    return found;
  }
  void settle() {
    if (!findings_.empty())
      throw UserError(std::move(findings_));
  }

  /// Collective.
  tokens::TokenFiles files_of(const EvaluationSource& source, comm::World& world) {
    tokens::TokenFiles files;
    attempt(!source.tokens.empty(), [&] {
      const bool compares = tokenizer_ != nullptr && tokenizer_->kind() != "bytes";
      files = tokens::check_token_files(
          source.tokens, source.tokens_key,
          {.vocabulary = shape_.vocabulary, .tokenizer = compares ? tokenizer_->hash() : 0}, world);
      std::int64_t tokens = 0;
      for (const tokens::TokenFile& file : files.files) tokens += file.tokens;
      expect_two(tokens, source.tokens_key);
    });
    return files;
  }

 private:
  template <class Action>
  void attempt(bool wanted, const Action& action) {
    try {
      if (wanted)
        action();
    } catch (const UserError& mistake) {
      findings_.insert(findings_.end(), mistake.findings().begin(), mistake.findings().end());
    }
  }
  static void expect_two(std::int64_t tokens, const std::string& key) {
    if (tokens < 2)
      throw UserError(
          {Diagnostic{{}, key, fmt::format("{} tokens are too few to predict one", tokens)}});
  }
  [[nodiscard]] Tokens text_of(const EvaluationSource& source) const {
    const auto format = tokens::text_format(source.field, "auto", tokens::BadLines::stop,
                                            *tokenizer_, source.text_key);
    Tokens tokens = tokens::encode_text(source.text, format, *tokenizer_, source.text_key);
    expect_two(std::ssize(tokens), source.text_key);
    return tokens;
  }
  const model::GptShape& shape_;
  const text::Tokenizer* tokenizer_;
  std::vector<Diagnostic> findings_;
};

}  // namespace

std::vector<EvaluationData> read_evaluation_data(const std::vector<EvaluationSource>& sources,
                                                 const model::GptShape& shape,
                                                 const text::Tokenizer* tokenizer,
                                                 comm::World& world) {
  std::vector<tokens::TokenFiles> files;
  Looking looking(shape, tokenizer);
  for (const EvaluationSource& source : sources) files.push_back(looking.files_of(source, world));
  auto found = comm::from_first_rank(world, [&] {
    std::vector<Found> all;
    for (const EvaluationSource& source : sources) all.push_back(looking.look(source));
    looking.settle();
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
