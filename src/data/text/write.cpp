// SPDX-License-Identifier: Apache-2.0
#include "text/write.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"

#include "text/unicode_ranges.hpp"

namespace trireme::text {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string spelling(const VocabularyEntry& entry) {
  return entry.ordinary() ? to_alphabet(entry.bytes) : entry.bytes;
}

OrderedJson ids_of(const Vocabulary& vocabulary) {
  OrderedJson ids = OrderedJson::object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (!vocabulary.tokens[id].bytes.empty())
      ids.push_back({spelling(vocabulary.tokens[id]), id});
  return ids;
}

std::string spelling(const Vocabulary& vocabulary, const MergePair& merge) {
  const auto of = [&](Token id) {
    return spelling(vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  return of(merge.first) + " " + of(merge.second);
}

OrderedJson byte_level(bool with_expression) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", with_expression}};
}

OrderedJson pre_tokenizer(Pattern pattern) {
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
  return {{"type", "Sequence"}, {"pretokenizers", passes}};
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
  const OrderedJson root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", vocabulary.nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson(nullptr)},
      {"pre_tokenizer", pre_tokenizer(vocabulary.pattern)},
      {"post_processor", nullptr},
      {"decoder", byte_level(true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
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
