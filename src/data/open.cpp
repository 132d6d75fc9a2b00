// SPDX-License-Identifier: Apache-2.0
#include "data/open.hpp"

#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

#include "data/hash.hpp"
#include "data/sources.hpp"
#include "data/synthetic.hpp"
#include "data/token_cache.hpp"

namespace trireme::data {

namespace {

void expect_one_source(const SourceConfig& train) {
  const int given =
      (train.text.empty() ? 0 : 1) + (train.tokens.empty() ? 0 : 1) + (train.synthetic > 0 ? 1 : 0);
  if (given != 1)
    throw UserError({Diagnostic{
        {}, "data.train", fmt::format("give one of text, tokens and synthetic, not {}", given)}});
}

std::string skipped_text(const CacheHeader& header, const TextSources& sources) {
  std::string text;
  const auto add = [&](std::int64_t count, const char* what) {
    if (count > 0)
      text += fmt::format(", {} {}", count, what);
  };
  add(static_cast<std::int64_t>(header.binary_files), "binary files skipped");
  add(sources.repeated, "files or directories met again");
  add(sources.left_out, "dangling links or special files left out");
  return text;
}

void prepare_text(const Setup& setup, Log& log) {
  const auto& entries = setup.config.train.text;
  const TextSources sources = find_text(entries);
  const std::string path = cache_path(setup);
  const char* verb = "cached";
  if (std::filesystem::exists(path)) {
    CacheHeader header;
    const std::string problem = cache_problem(path, header);
    if (problem.empty() && header.source_fingerprint == sources.fingerprint()) {
      log.info("data: {} tokens from the cache {}", header.tokens, path);
      return;
    }
    if (!problem.empty())
      log.warning("{}: the token cache {}: it is built again", path, problem);
    else
      verb = "the text has changed, cached again";
  }
  const CacheHeader header = build_cache(path, sources, entries);
  log.info("data: {} {} tokens from {} text files ({}{}) to {}", verb, header.tokens, header.files,
           bytes_text(static_cast<double>(header.tokens)), skipped_text(header, sources), path);
}

}  // namespace

std::string cache_path(const Setup& setup) {
  const DataConfig& config = setup.config;
  if (config.train.text.empty())
    return {};
  Hash hash;
  hash.add(word(config.tokenizer));
  for (const auto& entry : config.train.text) hash.add(entry);
  const std::filesystem::path directory = config.cache.value_or(setup.default_cache_directory);
  return (directory / fmt::format("text-{:016x}.tokens", hash.value())).string();
}

ShardSums prepare_tokens(const Setup& setup, Log& log) {
  const SourceConfig& train = setup.config.train;
  expect_one_source(train);
  if (!train.text.empty())
    prepare_text(setup, log);
  else if (!train.tokens.empty())
    return check_shards(find_shards(train.tokens), setup.vocabulary);
  return {};
}

std::unique_ptr<TokenStream> open_tokens(const Setup& setup, const ShardSums& sums) {
  const SourceConfig& train = setup.config.train;
  expect_one_source(train);
  if (!train.text.empty())
    return open_cache(cache_path(setup));
  if (!train.tokens.empty())
    return open_shards(find_shards(train.tokens), setup.vocabulary, sums);
  return std::make_unique<SyntheticTokens>(train.synthetic, setup.vocabulary, setup.seed);
}

}  // namespace trireme::data
