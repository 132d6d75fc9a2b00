// SPDX-License-Identifier: Apache-2.0
// The deck section `data`: where tokens come from.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

namespace trireme::data {

enum class Tokenizer : std::uint8_t { bytes };

/// Exactly one of the three sources is given.
struct SourceConfig {
  std::vector<std::string> text;
  std::vector<std::string> tokens;
  std::int64_t synthetic = 0;
};

struct DataConfig {
  SourceConfig train;
  Tokenizer tokenizer = Tokenizer::bytes;
  double validation_fraction = 0.1;
  Or<std::string> cache;
};

template <class V>
void describe(V& v, SourceConfig& c) {
  v("text", c.text,
    {.help = "Files, directories (searched in depth) and globs of text; read in sorted order.",
     .change = Change::asked});
  v("tokens", c.tokens,
    {.help = "Token shards in llm.c's .bin format (files and globs).", .change = Change::asked});
  v("synthetic", c.synthetic,
    {.unit = "tokens",
     .help = "That many made-up tokens with learnable structure, for benchmarks. 0: none.",
     .min = 0,
     .change = Change::asked});
}

template <class V>
void describe(V& v, DataConfig& c) {
  v.section("train", c.train);
  v("tokenizer", c.tokenizer,
    {.help = "How text becomes tokens; bytes: each byte is one token.", .change = Change::never});
  v("validation_fraction", c.validation_fraction,
    {.unit = "fraction",
     .help = "The last part of the tokens, kept from training and used for evaluation.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true,
     .change = Change::asked});
  v("cache", c.cache,
    {.help = "Directory of the tokenized cache file; auto: tokens/ in the run directory."});
}

}  // namespace trireme::data

template <>
struct trireme::EnumNames<trireme::data::Tokenizer> {
  using enum data::Tokenizer;
  static constexpr std::pair<data::Tokenizer, const char*> table[] = {{bytes, "bytes"}};
};
