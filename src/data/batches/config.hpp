// SPDX-License-Identifier: Apache-2.0
// The deck section `data`: where tokens come from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/key.hpp"

#include "tokens/text_format.hpp"
#include "tokens/token_files.hpp"

namespace trireme::batches {

/// Where the rows of a batch begin.
enum class Rows : std::uint8_t { stream, documents };

/// How a fraction of the training text is chosen for validation.
enum class ValidationBy : std::uint8_t { automatic, documents, tail };

/// Files of text or of tokens; at most one of the two is given.
struct FilesConfig {
  std::vector<std::string> text;
  std::vector<std::string> tokens;
  std::string field;
  std::string separator = "auto";
  tokens::BadLines bad_lines = tokens::BadLines::stop;
  tokens::TokenFormat format = tokens::TokenFormat::automatic;

  [[nodiscard]] bool given() const { return !text.empty() || !tokens.empty(); }
  bool operator==(const FilesConfig&) const = default;
};

struct MixturePart : FilesConfig {
  double weight = 0;
  bool operator==(const MixturePart&) const = default;
};

struct ValidationConfig : FilesConfig {
  ValidationBy by = ValidationBy::automatic;
};

/// Exactly one of the four sources is given.
struct SourceConfig : FilesConfig {
  std::int64_t synthetic = 0;
  std::vector<MixturePart> mixture;
};

struct DataConfig {
  SourceConfig train;
  ValidationConfig validation;
  std::string tokenizer = "bytes";
  Rows rows = Rows::stream;
  double validation_fraction = 0.1;
  std::vector<std::string> skip;
  Or<std::string> cache;

  [[nodiscard]] bool in_bytes() const { return tokenizer == "bytes"; }
  /// Whether any source is text, which is encoded into a cache.
  [[nodiscard]] bool has_text() const {
    return !train.text.empty() || !validation.text.empty() ||
           std::ranges::any_of(train.mixture, [](const auto& part) { return !part.text.empty(); });
  }
};

template <class V>
void describe(V& v, FilesConfig& c) {
  v("text", c.text,
    {.help =
         "Text files, directories (searched recursively) and globs, read in sorted order. Files "
         "compressed with gzip, zstd, bzip2 or xz are decompressed, whatever their names are.",
     .change = Change::asked});
  v("tokens", c.tokens,
    {.help =
         "Token files and globs: .bin files of llm.c (uint16 and uint32), .bin files of Megatron "
         "with an .idx file in the same directory, .npy arrays of integers, or raw numbers (see "
         "format).",
     .change = Change::asked});
  v("field", c.field,
    {.help = "Read the text as JSON lines: each line is a document, and its text is the value of "
             "this key. Empty: plain text.",
     .change = Change::asked});
  v("separator", c.separator,
    {.help =
         "What stands between documents in plain text; it is not encoded. auto: the spelling of "
         "the tokenizer's end-of-text token, such as <|endoftext|>. none: each file is one "
         "document. blank-line: empty lines. Otherwise the separator itself.",
     .change = Change::asked});
  v("bad_lines", c.bad_lines,
    {.help = "What to do with a line of JSON lines that is not a JSON object with a text under "
             "`field`. stop: end with an error that names the line and the reason. skip: leave the "
             "line out; the log states how many there were and where the first ten are.",
     .change = Change::asked});
  v("format", c.format,
    {.help = "Type of the numbers in `tokens`. auto: as the files of llm.c, Megatron and NumPy "
             "state. uint16, uint32: raw little-endian numbers without a header.",
     .change = Change::asked});
}

template <class V>
void describe(V& v, MixturePart& c) {
  v("weight", c.weight,
    {.help = "Share of the samples, relative to the other weights.",
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
     .help = "Number of generated tokens with learnable structure, for benchmarks. 0: none.",
     .min = 0,
     .change = Change::asked});
  v.list("mixture", c.mixture,
         {.help =
              "Several sources: [{weight: 3, text: [a]}, {weight: 1, tokens: [b.bin]}]. Every 4096 "
              "consecutive samples contain the share of each part. At a resume, a part that was "
              "in the mixture before continues where it stopped.",
          .change = Change::asked});
}

template <class V>
void describe(V& v, ValidationConfig& c) {
  describe(v, static_cast<FilesConfig&>(c));
  v("by", c.by,
    {.help =
         "What data.validation_fraction takes. documents: whole documents, chosen by a hash of "
         "their beginning, so that validation is like training. tail: the end of the tokens. "
         "auto: documents where text is encoded with a tokenizer and has at least 100 documents, "
         "else tail.",
     .change = Change::asked});
}

template <class V>
void describe(V& v, DataConfig& c) {
  v.section("train", c.train);
  v.section("validation", c.validation);
  v("tokenizer", c.tokenizer,
    {.help =
         "Tokenizer of the text. bytes: each byte is one token. Otherwise a file "
         "(tokenizer.json, vocab.json with merges.txt, *.tiktoken, *.model, *.bin of llm.c) or a "
         "directory that contains one. With token files: the tokenizer that made them.",
     .change = Change::never});
  v("rows", c.rows,
    {.help =
         "How tokens are cut into rows. stream: consecutive rows of the token stream, regardless "
         "of documents. documents: a row begins with a document or continues the document of the "
         "row before; the rest of a document's last row is filled with the documents that follow. "
         "This costs 8 bytes of memory per row on every rank.",
     .change = Change::asked});
  v("validation_fraction", c.validation_fraction,
    {.unit = "fraction",
     .help = "Fraction of the training data that is used for validation instead (see "
             "data.validation.by). Ignored if data.validation or a mixture is given.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true,
     .change = Change::asked});
  v("skip", c.skip,
    {.help = "Samples that training leaves out, by their global indices: [40000-40959, 51200]. The "
             "samples that follow take their places. `trireme data` prints the samples of a step. "
             "On resume only samples after the checkpoint can be added or removed."});
  v("cache", c.cache,
    {.help = "Directory of the shards of encoded text, and of indexes of token files that have no "
             "manifest of trireme tokenize. All ranks must see it. auto: tokens/ in the run "
             "directory. Give a directory to share them between runs."});
}

}  // namespace trireme::batches
