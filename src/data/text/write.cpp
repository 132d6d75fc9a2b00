// SPDX-License-Identifier: Apache-2.0
#include "text/write.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace trireme::text {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ids_of(const Vocabulary& vocabulary) {
  OrderedJson ids = OrderedJson::object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (!vocabulary.tokens[id].bytes.empty())
      ids.push_back({spelling_of(vocabulary, vocabulary.tokens[id]), id});
  return ids;
}

std::string spelling(const Vocabulary& vocabulary, const MergePair& merge) {
  const auto of = [&](Token id) {
    return spelling_of(vocabulary, vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  return of(merge.first) + " " + of(merge.second);
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
  const std::string& name = vocabulary.tokens[static_cast<std::size_t>(id)].bytes;
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

}  // namespace

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
