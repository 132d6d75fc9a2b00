// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "text/json_file.hpp"
#include "text/merging.hpp"
#include "text/write.hpp"

namespace trireme::text {
namespace {

/// In the order in which transformers lists the merges of a model of SentencePiece.
void list_scored(Vocabulary& vocabulary, const TokenOfBytes& ids) {
  std::vector<MadeToken> made = made_tokens(vocabulary, ids);
  const auto characters = [&](Token token) {
    return std::ranges::count_if(vocabulary.tokens[static_cast<std::size_t>(token)].bytes,
                                 [](char c) { return (c & 0xC0) != 0x80; });
  };
  std::ranges::sort(made, {}, [&](const MadeToken& one) {
    return std::tuple(vocabulary.ranks[static_cast<std::size_t>(one.token)], -characters(one.left),
                      -characters(one.right), one.token, one.left, one.right);
  });
  for (const auto& [left, right, token] : made) vocabulary.merges.emplace_back(left, right);
  vocabulary.ranks.clear();
}

/// Of each token the last merge that makes it, by those of lower ranks.
void list_ranked(Vocabulary& vocabulary, const TokenOfBytes& ids) {
  const std::vector<MadeToken> made = made_tokens(vocabulary, ids);
  MergeTable lower(made.size());
  std::vector<Token> parts;
  auto pair = made.begin();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const VocabularyEntry& entry = vocabulary.tokens[id];
    if (!entry.ordinary() || entry.bytes.size() < 2)
      continue;
    parts.clear();
    for (const char& c : entry.bytes) parts.push_back(ids.at({&c, 1}));
    if (lower.merge(parts) != 2)
      throw UserError(
          fmt::format("token {} ({:?}) is not a merge of two tokens of lower ranks, so this "
                      "tokenizer has no list of merges",
                      id, shortened(entry.bytes)));
    vocabulary.merges.emplace_back(parts[0], parts[1]);
    for (; pair != made.end() && std::cmp_equal(pair->token, id); ++pair)
      lower.add(pair->left, pair->right, static_cast<std::uint32_t>(id), pair->token);
  }
}

}  // namespace

Vocabulary listed_vocabulary(std::string_view serialized) {
  Vocabulary vocabulary;
  if (serialized == serialized_bytes) {
    for (int byte = 0; byte < 256; ++byte)
      vocabulary.tokens.push_back({std::string(1, static_cast<char>(byte)), false});
    return vocabulary;
  }
  vocabulary = vocabulary_from(serialized);
  if (vocabulary.rule == MergeRule::listed)
    return vocabulary;
  TokenOfBytes ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (const VocabularyEntry& entry = vocabulary.tokens[id]; entry.ordinary())
      ids.emplace(entry.bytes, static_cast<Token>(id));
  (vocabulary.rule == MergeRule::ranked ? list_ranked : list_scored)(vocabulary, ids);
  vocabulary.rule = MergeRule::listed;
  return vocabulary;
}

}  // namespace trireme::text
