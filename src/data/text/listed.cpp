// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "text/json_file.hpp"
#include "text/serialized.hpp"
#include "text/write.hpp"

namespace trireme::text {
namespace {

/// What the merges of ranks below `rank` make of a token's bytes: always the pair of the lowest
/// rank first, the leftmost of equals.
std::vector<std::string_view> parts_below(std::string_view bytes,
                                          Token rank,
                                          const TokenOfBytes& ranks) {
  std::vector<std::string_view> parts;
  for (std::size_t i = 0; i < bytes.size(); ++i) parts.push_back(bytes.substr(i, 1));
  for (;;) {
    Token lowest = rank;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto both = ranks.find({parts[i].data(), parts[i].size() + parts[i + 1].size()});
      if (both != ranks.end() && both->second < lowest) {
        lowest = both->second;
        where = i;
      }
    }
    if (lowest == rank)
      return parts;
    parts[where] = {parts[where].data(), parts[where].size() + parts[where + 1].size()};
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

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

void list_merges(Vocabulary& vocabulary) {
  TokenOfBytes ranks;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (const VocabularyEntry& entry = vocabulary.tokens[id]; entry.ordinary())
      ranks.emplace(entry.bytes, static_cast<Token>(id));
  if (std::exchange(vocabulary.rule, MergeRule::listed) == MergeRule::scored)
    return list_scored(vocabulary, ranks);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const VocabularyEntry& entry = vocabulary.tokens[id];
    if (!entry.ordinary() || entry.bytes.size() < 2)
      continue;
    const auto parts = parts_below(entry.bytes, static_cast<Token>(id), ranks);
    if (parts.size() != 2)
      throw UserError(
          fmt::format("token {} ({:?}) is not a merge of two tokens of lower ranks, so this "
                      "tokenizer has no list of merges",
                      id, shortened(entry.bytes)));
    vocabulary.merges.emplace_back(ranks.at(parts[0]), ranks.at(parts[1]));
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
  if (vocabulary.rule != MergeRule::listed)
    list_merges(vocabulary);
  return vocabulary;
}

}  // namespace trireme::text
