// SPDX-License-Identifier: Apache-2.0
#include "text/write.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

#include "text/json_file.hpp"
#include "text/merging.hpp"

namespace trireme::text {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ids_of(const Vocabulary& vocabulary) {
  OrderedJson ids = OrderedJson::object();
  // push_back of the object would compare each key with all before it.
  auto& members = ids.get_ref<OrderedJson::object_t&>();
  std::unordered_set<std::string> seen;
  for (Token id = 0; id < std::ssize(vocabulary.tokens); ++id)
    if (std::string key = spelling_of(vocabulary, id);
        !vocabulary[id].bytes.empty() && seen.insert(key).second)
      members.emplace_back(std::move(key), id);
  return ids;
}

std::string spelling(const Vocabulary& vocabulary, const MergePair& merge) {
  return spelling_of(vocabulary, merge.first) + " " + spelling_of(vocabulary, merge.second);
}

OrderedJson byte_level(bool with_expression) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", with_expression}};
}

OrderedJson sequence(const char* name, OrderedJson parts) {
  return {{"type", "Sequence"}, {name, std::move(parts)}};
}

OrderedJson replaced(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

/// transformers writes the prefixes `text` and `parts` like this.
bool prepends(const Vocabulary& vocabulary) {
  return vocabulary.prefix == SpacePrefix::text || vocabulary.prefix == SpacePrefix::parts;
}

OrderedJson normalizer(const Vocabulary& vocabulary) {
  OrderedJson parts = OrderedJson::array();
  if (vocabulary.nfc)
    parts.push_back({{"type", "NFC"}});
  if (prepends(vocabulary))
    parts.push_back({{"type", "Prepend"}, {"prepend", written_space}});
  if (vocabulary.characters)
    parts.push_back(replaced(" ", written_space));
  return parts.empty()       ? OrderedJson(nullptr)
         : parts.size() == 1 ? parts[0]
                             : sequence("normalizers", parts);
}

OrderedJson decoder(const Vocabulary& vocabulary) {
  if (!vocabulary.characters)
    return byte_level(true);
  OrderedJson parts = {
      replaced(written_space, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (vocabulary.prefix != SpacePrefix::none)
    parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence("decoders", parts);
}

OrderedJson post_processor(const Vocabulary& vocabulary) {
  if (!vocabulary.begin_of_text)
    return nullptr;
  const Token id = *vocabulary.begin_of_text;
  const std::string& name = vocabulary[id].bytes;
  const auto text = [](const char* which, int type) {
    return OrderedJson{{"Sequence", {{"id", which}, {"type_id", type}}}};
  };
  const OrderedJson begin = {{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  return {{"type", "TemplateProcessing"},
          {"single", {begin, text("A", 0)}},
          {"pair", {begin, text("A", 0), begin, text("B", 1)}},
          {"special_tokens", {{name, {{"id", name}, {"ids", {id}}, {"tokens", {name}}}}}}};
}

OrderedJson pre_tokenizer(const Vocabulary& vocabulary) {
  const Pattern pattern = vocabulary.pattern;
  if (vocabulary.characters && (vocabulary.prefix == SpacePrefix::none || prepends(vocabulary)))
    return nullptr;
  if (vocabulary.characters)
    return {{"type", "Metaspace"},
            {"replacement", written_space},
            {"prepend_scheme", vocabulary.prefix == SpacePrefix::words ? "always" : "first"},
            {"split", false}};
  if (pattern == Pattern::gpt2)
    return byte_level(true);
  OrderedJson passes = OrderedJson::array();
  if (pattern == Pattern::smollm)
    passes.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string_view expression : expressions_of(pattern))
    passes.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", expression}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
  passes.push_back(byte_level(pattern == Pattern::smollm));
  return sequence("pretokenizers", passes);
}

/// In the order in which transformers lists the merges of a model of SentencePiece.
void list_scored(Vocabulary& vocabulary, const TokenOfBytes& ids) {
  std::vector<MadeToken> made = made_tokens(vocabulary, ids);
  const auto characters = [&](Token token) {
    return std::ranges::count_if(vocabulary[token].bytes,
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
  const TokenOfBytes ids = ordinary_tokens(vocabulary);
  (vocabulary.rule == MergeRule::ranked ? list_ranked : list_scored)(vocabulary, ids);
  vocabulary.rule = MergeRule::listed;
  return vocabulary;
}

std::string tokenizer_json(const Vocabulary& vocabulary) {
  TRIREME_EXPECT(vocabulary.rule == MergeRule::listed, "merges by rank have no list");
  OrderedJson added = OrderedJson::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (const VocabularyEntry& entry = vocabulary.tokens[id]; entry.special || entry.added)
      added.push_back({{"id", id},
                       {"content", entry.bytes},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", entry.special}});
  OrderedJson merges = OrderedJson::array();
  for (const MergePair& merge : vocabulary.merges) merges.push_back(spelling(vocabulary, merge));
  const OrderedJson root = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added},
                            {"normalizer", normalizer(vocabulary)},
                            {"pre_tokenizer", pre_tokenizer(vocabulary)},
                            {"post_processor", post_processor(vocabulary)},
                            {"decoder", decoder(vocabulary)},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", vocabulary.characters},
                              {"ignore_merges", vocabulary.whole_pieces},
                              {"vocab", ids_of(vocabulary)},
                              {"merges", merges}}}};
  return root.dump(1) + "\n";
}

std::string vocab_json(const Vocabulary& vocabulary) {
  return ids_of(vocabulary).dump() + "\n";
}

std::string merges_txt(const Vocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const MergePair& merge : vocabulary.merges) text += spelling(vocabulary, merge) + "\n";
  return text;
}

}  // namespace trireme::text
