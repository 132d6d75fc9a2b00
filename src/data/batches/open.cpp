// SPDX-License-Identifier: Apache-2.0
#include "batches/open.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/stage_progress.hpp"
#include "base/text.hpp"

#include "tokens/sources.hpp"
#include "tokens/stored_hash.hpp"
#include "tokens/synthetic.hpp"
#include "tokens/token_cache.hpp"

namespace trireme::batches {

namespace {

/// One source of the deck.
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
    throw UserError({Diagnostic{
        {},
        "data.train",
        fmt::format("give one of text, tokens, synthetic and mixture, not {}", given)}});
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
      throw UserError({Diagnostic{{}, source.key, "give one of text and tokens"}});
  return sources;
}

/// Whether tokens are the bytes of the text, as they lie in it.
bool plain_bytes(const Setup& setup, const FilesConfig& files) {
  const bool none = files.separator == "auto" || files.separator == "none";
  const bool chosen =
      &files == &setup.config.train && setup.config.validation.by == ValidationBy::documents;
  return files.field.empty() && none && !chosen &&
         (setup.tokenizer == nullptr || setup.tokenizer->kind() == "bytes");
}

constexpr std::uint64_t least_documents = 100;  ///< from which on `auto` takes documents

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
void check_tail(const std::vector<std::uint64_t>& begins,
                std::uint64_t tokens,
                const Setup& setup,
                const Source& source,
                const tokens::TextSources& sources,
                Log& log) {
  const auto border = static_cast<std::uint64_t>(
      validation_begin(static_cast<std::int64_t>(tokens), setup.config.validation_fraction));
  const auto first = std::ranges::lower_bound(begins, border);
  if (setup.config.validation.given() || source.files != &setup.config.train ||
      first == begins.end() || first == begins.begin() || begins.end() - first > few_files ||
      2 * (tokens - *first) < tokens - border)
    return;
  log.warning(
      "{}: the validation data are the end of the text, most of it from {} on, and nothing of "
      "these files is trained on. Where files differ, the validation loss does not show how "
      "training goes. Give data.validation, or set data.validation.by: documents",
      source.key, sources.files[static_cast<std::size_t>(first - begins.begin())].path);
}

/// Returns the tokens for validation at the end of the cache; -1: it is not made so.
std::int64_t prepare_text(const Setup& setup, const Source& source, Log& log) {
  const auto& entries = source.files->text;
  const tokens::TextSources sources = tokens::find_text(entries, source.key + ".text");
  tokens::say_skipped(sources, source.key + ".text", log);
  const std::string path = cache_path(setup, *source.files);
  const char* verb = "cached";
  if (std::filesystem::exists(path)) {
    tokens::CacheHeader header;
    const std::string problem = tokens::cache_problem(path, header);
    if (problem.empty() && header.source_fingerprint == sources.fingerprint()) {
      log.info("data: {} tokens from the cache {}", header.tokens, path);
      return header.validation > 0 ? static_cast<std::int64_t>(header.validation) : -1;
    }
    if (!problem.empty())
      log.warning("{}: the token cache {}; rebuilding it", path, problem);
    else
      verb = "the text has changed; rebuilding the cache";
  }
  tokens::Encoding encoding;
  tokens::TextFormat format;
  tokens::TextNotes notes;
  StageProgress progress(log);
  std::shared_ptr<const text::Tokenizer> tokenizer;
  if (!plain_bytes(setup, *source.files)) {
    tokenizer = setup.tokenizer ? setup.tokenizer : text::byte_tokenizer();
    format = tokens::text_format(source.files->field, source.files->separator,
                                 source.files->bad_lines, *tokenizer, source.key + ".separator");
    encoding = {.tokenizer = tokenizer.get(),
                .format = format,
                .notes = &notes,
                .progress = [&](std::int64_t done, std::int64_t all) {
                  progress.report(
                      "data: encoding " + bytes_text(static_cast<double>(all)) + " of text",
                      static_cast<double>(done), static_cast<double>(all));
                }};
  }
  std::vector<std::uint64_t> begins;
  encoding.begins = &begins;
  const auto build = [&](double validation_fraction) {
    begins.clear();
    notes = {};
    encoding.validation_fraction = validation_fraction;
    return tokens::build_cache(path, sources, entries, encoding, source.key + ".text");
  };
  const bool documents = by_documents(setup, *source.files);
  tokens::CacheHeader header = build(documents ? setup.config.validation_fraction : 0);
  if (documents && setup.config.validation.by == ValidationBy::automatic && header.validation > 0 &&
      header.documents < least_documents)
    header = build(0);
  if (documents && setup.config.validation.by == ValidationBy::documents && header.validation == 0)
    throw UserError({Diagnostic{
        {},
        "data.validation.by",
        fmt::format("documents gives no validation data: none of the {} documents was chosen. Set "
                    "data.validation.by: tail, or a larger data.validation_fraction",
                    header.documents)}});
  if (header.validation > 0)
    log.info("{}: {} of {} tokens, whole documents chosen by a hash, are validation data",
             source.key, header.validation, header.tokens);
  else
    check_tail(begins, header.tokens, setup, source, sources, log);
  notes.say(format, source.key + ".text", log);
  log.info("data: {} {} tokens from {} text files ({}) to {}", verb, header.tokens, header.files,
           bytes_text(static_cast<double>(header.tokens * header.token_bytes)), path);
  return header.validation > 0 ? static_cast<std::int64_t>(header.validation) : -1;
}

std::optional<std::int32_t> end_of_text_of(const Setup& setup) {
  return setup.tokenizer ? setup.tokenizer->end_of_text() : std::nullopt;
}

/// Throws UserError where rows of documents were asked for, and none were found.
void expect_rows(const Setup& setup, const Source& source, const tokens::TokenFiles& found) {
  if (setup.config.rows != Rows::documents || !found.rows.empty())
    return;
  throw UserError({Diagnostic{
      {},
      source.key,
      end_of_text_of(setup)
          ? fmt::format("data.rows: documents finds no document of which a row of {} tokens could "
                        "be made: no end of text (token {}) is in the data",
                        setup.context + 1, *end_of_text_of(setup))
          : "data.rows: documents finds no documents: data.tokenizer has no end-of-text token, and "
            "the files do not mark where documents begin"}});
}

/// Throws UserError where a document mask was asked for that would mask nothing.
void expect_documents(const Setup& setup, const Source& source, const tokens::TokenFiles& found) {
  if (!setup.document_mask || found.documents > 0)
    return;
  throw UserError({Diagnostic{
      {},
      source.key,
      fmt::format("model.document_mask finds no documents: {}. Write the token files with an "
                  "end-of-text token at each document (Megatron: --append-eod), or set "
                  "model.document_mask: false",
                  end_of_text_of(setup) ? fmt::format("the end-of-text token {} is not in the data",
                                                      *end_of_text_of(setup))
                                        : "data.tokenizer has no end-of-text token")}});
}

tokens::TokenFiles prepare(const Setup& setup, const Source& source, Log& log) {
  tokens::TokenFiles found;
  const bool documents = setup.config.rows == Rows::documents;
  if (!source.files->text.empty()) {
    found.validation_tokens = prepare_text(setup, source, log);
    if (const auto end_of_text = end_of_text_of(setup); documents && end_of_text)
      found.rows = tokens::rows_of_stream(*tokens::open_cache(cache_path(setup, *source.files)),
                                          setup.context, *end_of_text);
    expect_rows(setup, source, found);
  } else if (!source.files->tokens.empty()) {
    StageProgress progress(log);
    const bool known = setup.tokenizer != nullptr && !setup.config.in_bytes();
    if (known && source.files->format == tokens::TokenFormat::uint16 &&
        tokens::width_of(setup.tokenizer->vocabulary()) > 2)
      log.warning(
          "{}.format is uint16, which cannot hold the {} ids of data.tokenizer: larger ids would "
          "have lost their upper bits when the files were written. Check how they were made",
          source.key, setup.tokenizer->vocabulary());
    found = tokens::check_token_files(
        tokens::find_shards(source.files->tokens, source.key + ".tokens"),
        {.format = source.files->format,
         .vocabulary = setup.vocabulary,
         .row_context = documents ? setup.context : 0,
         .counts_documents = setup.document_mask,
         .end_of_text = end_of_text_of(setup),
         .tokenizer = known ? setup.tokenizer->hash() : 0,
         .progress = [&](std::int64_t done, std::int64_t all) {
           progress.report("data: checking " + bytes_text(static_cast<double>(all)) + " of tokens",
                           static_cast<double>(done), static_cast<double>(all));
         }});
    expect_rows(setup, source, found);
    expect_documents(setup, source, found);
  }
  return found;
}

std::shared_ptr<const tokens::TokenStream> opened(const Setup& setup,
                                                  const Source& source,
                                                  const tokens::TokenFiles& found) {
  if (!source.files->text.empty())
    return tokens::open_cache(cache_path(setup, *source.files));
  if (!source.files->tokens.empty())
    return tokens::open_token_files(found, setup.vocabulary);
  return std::make_shared<tokens::SyntheticTokens>(source.synthetic, setup.vocabulary, setup.seed);
}

}  // namespace

std::string cache_path(const Setup& setup, const FilesConfig& files) {
  if (files.text.empty())
    return {};
  const bool bytes = setup.tokenizer == nullptr || setup.tokenizer->kind() == "bytes";
  tokens::StoredHash hash;
  hash.add(bytes ? "bytes" : fmt::format("{:016x}", setup.tokenizer->hash()));
  if (!files.field.empty())
    hash.add("json lines").add(files.field).add(word(files.bad_lines));
  if (by_documents(setup, files))
    hash.add("validation")
        .add(word(setup.config.validation.by))
        .add(fmt::format("{}", setup.config.validation_fraction));
  if (files.separator != "auto")
    hash.add("separator").add(files.separator);
  for (const auto& entry : files.text) hash.add(entry);
  const std::filesystem::path directory =
      setup.config.cache.value_or(setup.default_cache_directory);
  return (directory / fmt::format("text-{:016x}.tokens", hash.value())).string();
}

Prepared prepare_sources(const Setup& setup, Log& log) {
  Prepared prepared;
  for (const Source& source : sources_of(setup.config))
    prepared.sources.push_back(prepare(setup, source, log));
  return prepared;
}

Sources open_sources(const Setup& setup, const Prepared& prepared) {
  const auto sources = sources_of(setup.config);
  TRIREME_EXPECT(sources.size() == prepared.sources.size(), "{} sources, {} were prepared",
                 sources.size(), prepared.sources.size());
  Sources all;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    Stream stream{opened(setup, source, prepared.sources[i]), nullptr, source.key, source.weight,
                  prepared.sources[i].validation_tokens};
    if (setup.config.rows == Rows::documents)
      stream.rows = std::make_shared<const std::vector<std::int64_t>>(prepared.sources[i].rows);
    if (source.validates)
      all.validation = std::move(stream);
    else
      all.train.push_back(std::move(stream));
  }
  return all;
}

}  // namespace trireme::batches
