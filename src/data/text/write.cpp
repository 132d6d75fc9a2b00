// SPDX-License-Identifier: Apache-2.0
#include "text/write.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "files/new_directory.hpp"

#include "text/unicode_ranges.hpp"

namespace trireme::text {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string spelling(const VocabularyEntry& entry) {
  return entry.special ? entry.bytes : to_alphabet(entry.bytes);
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
  const OrderedJson split = {{"type", "Split"},
                             {"pattern", {{"Regex", expression_of(pattern)}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", OrderedJson::array({split, byte_level(false)})}};
}

}  // namespace

std::string tokenizer_json(const Vocabulary& vocabulary) {
  TRIREME_EXPECT(vocabulary.rule == MergeRule::listed, "merges by rank have no list");
  OrderedJson added = OrderedJson::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (vocabulary.tokens[id].special)
      added.push_back({{"id", id},
                       {"content", vocabulary.tokens[id].bytes},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  OrderedJson merges = OrderedJson::array();
  for (const MergePair& merge : vocabulary.merges) merges.push_back(spelling(vocabulary, merge));
  const OrderedJson root = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added},
                            {"normalizer", nullptr},
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

std::string training_json(const Vocabulary& vocabulary, const CountedCorpus& corpus) {
  const OrderedJson root = {{"pattern", name_of(vocabulary.pattern)},
                            {"unicode", unicode_version},
                            {"ids", vocabulary.tokens.size()},
                            {"bytes", corpus.bytes},
                            {"pieces", corpus.pieces},
                            {"distinct_pieces_kept", corpus.kept.pieces().size()},
                            {"least_count_kept", corpus.kept.threshold()},
                            {"distinct_pieces_dropped", corpus.kept.dropped()},
                            {"occurrences_dropped", corpus.kept.dropped_occurrences()},
                            {"pieces_too_long", corpus.too_long}};
  return root.dump(1) + "\n";
}

double bytes_per_token(const Vocabulary& vocabulary, const std::vector<CountedPiece>& pieces) {
  const auto tokenizer = make_tokenizer(vocabulary, "the trained vocabulary");
  std::vector<Token> tokens;
  double bytes = 0, all = 0;
  for (const CountedPiece& piece : pieces) {
    tokens.clear();
    tokenizer->encode(piece.bytes, tokens);
    bytes += static_cast<double>(piece.count) * static_cast<double>(piece.bytes.size());
    all += static_cast<double>(piece.count) * static_cast<double>(tokens.size());
  }
  return all > 0 ? bytes / all : 0;
}

void write_tokenizer(const std::string& directory,
                     const Vocabulary& vocabulary,
                     const std::string& facts) {
  files::NewDirectory made(directory);
  made.write("tokenizer.json", tokenizer_json(vocabulary));
  made.write("vocab.json", vocab_json(vocabulary));
  made.write("merges.txt", merges_txt(vocabulary));
  made.write("training.json", facts);
  made.commit();
}

}  // namespace trireme::text
