// SPDX-License-Identifier: Apache-2.0
#include "batches/open.hpp"

#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/stage_progress.hpp"
#include "base/text.hpp"

#include "comm/control/together.hpp"

#include "corpus/tokenize.hpp"
#include "text/json_file.hpp"
#include "tokens/sources.hpp"
#include "tokens/stored_hash.hpp"

namespace trireme::batches {

namespace {

struct Source {
  std::string key;
  const FilesConfig* files = nullptr;
  std::int64_t synthetic = 0;
  double weight = 1;
  bool validates = false;
};

std::vector<Source> sources_of(const DataConfig& config) {
  const SourceConfig& train = config.train;
  const int given = (train.text.empty() ? 0 : 1) + (train.tokens.empty() ? 0 : 1) +
                    (train.synthetic > 0 ? 1 : 0) + (train.mixture.empty() ? 0 : 1);
  if (given != 1)
    text::refuse_key("", "data.train",
                     fmt::format("give one of text, tokens, synthetic and mixture, not {}", given));
  std::vector<Source> sources;
  for (std::size_t i = 0; i < train.mixture.size(); ++i)
    sources.push_back({fmt::format("data.train.mixture[{}]", i), &train.mixture[i], 0,
                       train.mixture[i].weight, false});
  if (sources.empty())
    sources.push_back({"data.train", &train, train.synthetic, 1, false});
  if (config.validation.given())
    sources.push_back({"data.validation", &config.validation, 0, 1, true});
  for (const Source& source : sources)
    if (source.synthetic == 0 && source.files->text.empty() == source.files->tokens.empty())
      text::refuse_key("", source.key, "give one of text and tokens");
  return sources;
}

/// Whether tokens are the bytes of the text, unchanged.
bool plain_bytes(const Setup& setup, const FilesConfig& files) {
  const bool none = files.separator == "auto" || files.separator == "none";
  const bool chosen =
      &files == &setup.config.train && setup.config.validation.by == ValidationBy::documents;
  return files.field.empty() && none && !chosen &&
         (setup.tokenizer == nullptr || setup.tokenizer->kind() == "bytes");
}

constexpr std::int64_t least_documents = 100;  ///< from which on `auto` takes documents

/// Whether documents for validation are chosen by a hash; `auto` may find too few.
bool by_documents(const Setup& setup, const FilesConfig& files) {
  const ValidationBy by = setup.config.validation.by;
  return &files == &setup.config.train && !files.text.empty() &&
         setup.config.validation_fraction > 0 && !setup.config.validation.given() &&
         (by == ValidationBy::documents ||
          (by == ValidationBy::automatic && !plain_bytes(setup, files)));
}

constexpr std::ptrdiff_t few_files = 3;

/// Warns where most of the tail is of a few files that are not trained on.
void check_tail(const Setup& setup, const Source& source, Log& log) {
  if (setup.config.validation.given() || source.files != &setup.config.train)
    return;
  const auto files = tokens::find_text(source.files->text, source.key + ".text").files;
  std::int64_t all = 0;
  for (const tokens::TextFile& file : files) all += file.size;
  const std::int64_t border = validation_begin(all, setup.config.validation_fraction);
  std::int64_t begin = all;
  auto first = files.end();  // the first file that begins in the tail
  while (first != files.begin() && begin - (first - 1)->size >= border) begin -= (--first)->size;
  if (first == files.end() || first == files.begin() || files.end() - first > few_files ||
      2 * (all - begin) < all - border)
    return;
  log.warning(
      "{}: the validation data are the end of the text, most of it from {} on, and nothing of "
      "these files is trained on. Where files differ, the validation loss does not show how "
      "training goes. Give data.validation, or set data.validation.by: documents",
      source.key, first->path);
}

std::string cache_directory(const Setup& setup) {
  return setup.config.cache.value_or(setup.default_cache_directory);
}

/// The cache is named by this and by a hash of the text.
std::string cache_prefix(const Setup& setup, const FilesConfig& files) {
  tokens::StoredHash hash;
  for (const auto& entry : files.text) hash.add(entry);
  return (std::filesystem::path(cache_directory(setup)) / fmt::format("text-{:016x}", hash.value()))
      .string();
}

/// Encodes text where it has no cache.
corpus::Corpus encoded(
    const Setup& setup, const Source& source, Stream& stream, comm::World& world, Log& log) {
  corpus::TokenizeRequest request{
      .tokenizer = setup.tokenizer ? setup.tokenizer : text::byte_tokenizer(),
      .text = source.files->text,
      .format = {},
      .output = cache_prefix(setup, *source.files),
      .validation_fraction =
          by_documents(setup, *source.files) ? setup.config.validation_fraction : 0,
      .shard_bytes = std::int64_t{32} << 20U,
      .key = source.key + ".text",
      .is_cache = true};
  comm::together(world, [&] {
    request.format =
        tokens::text_format(source.files->field, source.files->separator, source.files->bad_lines,
                            *request.tokenizer, source.key + ".separator");
  });
  corpus::Corpus corpus = corpus::tokenize(request, world, log);
  stream.text = std::make_shared<const corpus::TokenizeRequest>(std::move(request));
  const tokens::Manifest& manifest = corpus.manifest;
  const std::int64_t validation = tokens::sum_of(manifest.validation).tokens;
  log.info("data: {} {} tokens {} {}_*.bin", corpus.is_new ? "encoded" : "found",
           tokens::sum_of(manifest.train).tokens + validation, corpus.is_new ? "into" : "in",
           corpus.output);
  return corpus;
}

/// How many of the tokens, at the end, are for validation; -1: the fraction of them.
std::int64_t validation_tokens(const Setup& setup,
                               const Source& source,
                               const corpus::Corpus& corpus,
                               comm::World& world,
                               Log& log) {
  const tokens::Manifest& manifest = corpus.manifest;
  const std::int64_t documents = manifest.notes.documents;
  const std::int64_t train = tokens::sum_of(manifest.train).tokens;
  const std::int64_t validation = tokens::sum_of(manifest.validation).tokens;
  const bool wanted = setup.config.validation.by == ValidationBy::documents;
  if (by_documents(setup, *source.files)) {
    if (train > 0 && validation > 0 && (wanted || documents >= least_documents)) {
      log.info("{}: {} of {} tokens, whole documents chosen by a hash, are validation data",
               source.key, validation, validation + train);
      return validation;
    }
    if (wanted)
      text::refuse_key(
          "", "data.validation.by",
          fmt::format("documents gives no {} data: the hash chose {} of the {} documents. Set "
                      "data.validation.by: tail, or a {} data.validation_fraction",
                      train > 0 ? "validation" : "training", train > 0 ? "none" : "all", documents,
                      train > 0 ? "larger" : "smaller"));
  }
  if (corpus.is_new && world.rank() == 0)
    check_tail(setup, source, log);
  return -1;
}

std::optional<std::int32_t> end_of_text_of(const Setup& setup) {
  return setup.tokenizer ? setup.tokenizer->end_of_text() : std::nullopt;
}

/// Throws UserError where rows of documents were asked for, and none were found.
void expect_rows(const Setup& setup, const Source& source, const tokens::TokenFiles& found) {
  if (setup.config.rows != Rows::documents || !found.rows.empty())
    return;
  text::refuse_key(
      "", source.key,
      end_of_text_of(setup)
          ? fmt::format("data.rows: documents finds no document of which a row of {} tokens could "
                        "be made: no end of text (token {}) is in the data",
                        setup.context + 1, *end_of_text_of(setup))
          : "data.rows: documents finds no documents: data.tokenizer has no end-of-text token, and "
            "the files do not mark where documents begin");
}

/// Throws UserError where a document mask was asked for that would mask nothing.
void expect_documents(const Setup& setup, const Source& source, const tokens::TokenFiles& found) {
  if (!setup.document_mask || found.documents > 0)
    return;
  text::refuse_key(
      "", source.key,
      fmt::format("model.document_mask finds no documents: {}. Write the token files with an "
                  "end-of-text token at each document (Megatron: --append-eod), or set "
                  "model.document_mask: false",
                  end_of_text_of(setup) ? fmt::format("the end-of-text token {} is not in the data",
                                                      *end_of_text_of(setup))
                                        : "data.tokenizer has no end-of-text token"));
}

/// Collective.
tokens::TokenFiles token_files(
    const Setup& setup, const Source& source, Stream& stream, comm::World& world, Log& log) {
  const bool known = setup.tokenizer != nullptr && !setup.config.in_bytes();
  if (known && source.files->format == tokens::TokenFormat::uint16 &&
      tokens::width_of(setup.tokenizer->vocabulary()) > 2)
    log.warning(
        "{}.format is uint16, which cannot hold the {} ids of data.tokenizer: larger ids would "
        "have lost their upper bits when the files were written. Check how they were made",
        source.key, setup.tokenizer->vocabulary());
  StageProgress progress(log);
  tokens::TokenRequirements requirements{
      .format = source.files->format,
      .vocabulary = setup.vocabulary,
      .row_context = setup.config.rows == Rows::documents ? setup.context : 0,
      .marks_documents = setup.document_mask,
      .end_of_text = end_of_text_of(setup),
      .tokenizer = known ? setup.tokenizer->hash() : 0,
      .index_directory = cache_directory(setup),
      .progress = [&](std::int64_t done, std::int64_t all) {
        progress.report("data: checking " + bytes_text(all) + " of tokens on rank 0",
                        static_cast<double>(done), static_cast<double>(all));
      }};
  if (source.files->text.empty())
    return tokens::check_token_files(source.files->tokens, source.key + ".tokens", requirements,
                                     world);
  const corpus::Corpus corpus = encoded(setup, source, stream, world, log);
  std::vector<std::string> paths;
  const auto directory = std::filesystem::path(corpus.output).parent_path();
  for (const auto* set : {&corpus.manifest.train, &corpus.manifest.validation})
    for (const tokens::ManifestShard& shard : *set)
      paths.push_back((directory / shard.file).string());
  requirements.vocabulary = corpus.manifest.vocabulary;
  requirements.tokenizer = corpus.manifest.tokenizer;
  auto found = tokens::check_token_files(paths, source.key + ".text", requirements, world);
  comm::together(world, [&] {
    found.validation_tokens = validation_tokens(setup, source, corpus, world, log);
  });
  return found;
}

/// Collective.
Stream opened(const Setup& setup, const Source& source, comm::World& world, Log& log) {
  Stream stream{nullptr, nullptr, source.key, source.weight};
  const bool is_text = !source.files->text.empty();
  if (!is_text && source.files->tokens.empty()) {
    stream.tokens =
        std::make_shared<tokens::SyntheticTokens>(source.synthetic, setup.vocabulary, setup.seed);
    return stream;
  }
  tokens::TokenFiles found = token_files(setup, source, stream, world, log);
  if (!found.marks.empty())
    log.info(
        "{}: the end-of-text token is put in front of each of the {} documents that the index "
        "states, because the files have none",
        source.key, found.marks.size());
  comm::together(world, [&] {
    expect_rows(setup, source, found);
    if (!is_text)
      expect_documents(setup, source, found);
    const std::int64_t vocabulary = !is_text          ? setup.vocabulary
                                    : setup.tokenizer ? setup.tokenizer->vocabulary()
                                                      : 256;
    stream.tokens = tokens::open_token_files(found, vocabulary, end_of_text_of(setup).value_or(-1));
    stream.validation_tokens = found.validation_tokens;
    if (setup.config.rows == Rows::documents)
      stream.rows = std::make_shared<const std::vector<std::int64_t>>(std::move(found.rows));
    stream.files = std::move(found.files);
    stream.marks = std::move(found.marks);
  });
  return stream;
}

/// Warns where validation data are trained on.
void check_unseen(const Stream& validation, const std::vector<Stream>& train, Log& log) {
  for (const tokens::TokenFile& unseen : validation.files)
    for (const Stream& stream : train)
      for (const tokens::TokenFile& seen : stream.files)
        if (!seen.index.empty() && seen.hash == unseen.hash && seen.tokens == unseen.tokens)
          return log.warning(
              "{}: the tokens of {} are in {} as well, so the validation loss is also that of data "
              "that are trained on",
              validation.key, unseen.path, stream.key);
}

}  // namespace

Sources open_sources(const Setup& setup, comm::World& world, Log& log) {
  std::vector<Source> sources;
  comm::together(world, [&] { sources = sources_of(setup.config); });
  Sources all;
  for (const Source& source : sources) {
    Stream stream = opened(setup, source, world, log);
    if (source.validates)
      all.validation = std::move(stream);
    else
      all.train.push_back(std::move(stream));
  }
  if (all.validation && world.rank() == 0)
    check_unseen(*all.validation, all.train, log);
  return all;
}

}  // namespace trireme::batches
