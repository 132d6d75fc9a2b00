// SPDX-License-Identifier: Apache-2.0
// The deck section `data`: where tokens come from.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "tokens/token_files.hpp"

namespace trireme::batches {

/// Where the rows of a batch begin.
enum class Rows : std::uint8_t { stream, documents };

/// Files of text or of tokens; at most one of the two is given.
struct FilesConfig {
  std::vector<std::string> text;
  std::vector<std::string> tokens;
  std::string field;
  tokens::TokenFormat format = tokens::TokenFormat::automatic;

  [[nodiscard]] bool given() const { return !text.empty() || !tokens.empty(); }
  bool operator==(const FilesConfig&) const = default;
};

struct MixturePart : FilesConfig {
  double weight = 0;
  bool operator==(const MixturePart&) const = default;
};

/// Exactly one of the four sources is given.
struct SourceConfig : FilesConfig {
  std::int64_t synthetic = 0;
  std::vector<MixturePart> mixture;
};

struct DataConfig {
  SourceConfig train;
  FilesConfig validation;
  std::string tokenizer = "bytes";
  Rows rows = Rows::stream;
  double validation_fraction = 0.1;
  Or<std::string> cache;

  /// The word of the deck for the tokenizer that needs no file.
  [[nodiscard]] bool in_bytes() const { return tokenizer == "bytes"; }
};

template <class V>
void describe(V& v, FilesConfig& c) {
  v("text", c.text,
    {.help = "Files, directories (searched in depth) and globs of text; read in sorted order. "
             "Names that end in .gz or .zst are decompressed.",
     .change = Change::asked});
  v("tokens", c.tokens,
    {.help = "Token files and globs: llm.c's .bin (uint16 and uint32), Megatron's .bin with its "
             ".idx beside it, or raw numbers (format).",
     .change = Change::asked});
  v("field", c.field,
    {.help = "The text is JSON lines: one object per line, a document each, whose text is the "
             "value of this key. Empty: plain text.",
     .change = Change::asked});
  v("format", c.format,
    {.help = "Type of the numbers in `tokens`. auto: llm.c's and Megatron's files, which state it; "
             "uint16 and uint32: nothing but little-endian numbers.",
     .change = Change::asked});
}

template <class V>
void describe(V& v, MixturePart& c) {
  v("weight", c.weight,
    {.help = "The share of the samples, relative to the other weights.",
     .min = 0.0,
     .max = 1e12,
     .above_min = true,
     .required = true});
  describe(v, static_cast<FilesConfig&>(c));
}

template <class V>
void describe(V& v, SourceConfig& c) {
  describe(v, static_cast<FilesConfig&>(c));
  v("synthetic", c.synthetic,
    {.unit = "tokens",
     .help = "That many made-up tokens with learnable structure, for benchmarks. 0: none.",
     .min = 0,
     .change = Change::asked});
  v.list(
      "mixture", c.mixture,
      {.help = "Several sources, as in [{weight: 3, text: [a]}, {weight: 1, tokens: [b.bin]}]: of "
               "each 4096 samples in a row, every part gives its share. A part that is also in the "
               "mixture of the run's checkpoint continues where it was.",
       .change = Change::asked});
}

template <class V>
void describe(V& v, DataConfig& c) {
  v.section("train", c.train);
  v.section("validation", c.validation);
  v("tokenizer", c.tokenizer,
    {.help = "How text becomes tokens. bytes: each byte is one token; else a file "
             "(tokenizer.json, vocab.json beside merges.txt, *.tiktoken, llm.c's *.bin) or a "
             "directory with one. With token files: the tokenizer that made them.",
     .change = Change::never});
  v("rows", c.rows,
    {.help =
         "stream: rows follow one another in the stream of tokens, whatever documents they "
         "meet. documents: a row begins with a document, or continues where the row before ended "
         "in the same one; what follows a document fills its last row up. Costs 8 bytes of "
         "memory per row on every rank.",
     .change = Change::asked});
  v("validation_fraction", c.validation_fraction,
    {.unit = "fraction",
     .help = "The last part of the training source's tokens, kept from training and used for "
             "evaluation; without effect where data.validation or a mixture is given.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true,
     .change = Change::asked});
  v("cache", c.cache,
    {.help = "Directory of the tokenized cache files; auto: tokens/ in the run directory."});
}

}  // namespace trireme::batches

template <>
struct trireme::EnumNames<trireme::batches::Rows> {
  using enum batches::Rows;
  static constexpr std::pair<batches::Rows, const char*> table[] = {{stream, "stream"},
                                                                    {documents, "documents"}};
};
