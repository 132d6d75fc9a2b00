// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/log.hpp"
#include "base/stage_progress.hpp"
#include "base/text.hpp"
#include "files/new_directory.hpp"

#include "comm/control/together.hpp"
#include "comm/control/world.hpp"

#include "corpus/train.hpp"
#include "text/pieces.hpp"
#include "tokens/sources.hpp"

#include "session/machine.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {
namespace {

struct TrainOptions {
  std::vector<std::string> files;
  std::string field;
  std::string pattern = "gpt2", output;
  std::int64_t vocabulary = 0;
  double memory_gib = 4;
  int threads = 0;
};

/// The files named by --text as rank 0 finds them, on every rank.
std::vector<tokens::TextFile> files_of(comm::World& world, const TrainOptions& words, Log& log) {
  return comm::from_first_rank(world, [&] {
    files::expect_new_directory(words.output);
    tokens::TextSources sources = tokens::find_text(words.files, "--text");
    tokens::report_sources(sources, words.field, "--text", log);
    return std::move(sources.files);
  });
}

/// No merges are learned from the end-of-text token that the trained tokenizer will have.
tokens::TextFormat format_of(const TrainOptions& words) {
  tokens::TextFormat format(words.field);
  if (words.field.empty())
    format.separator = corpus::end_of_text_name;
  format.uncut = text::Spellings({corpus::end_of_text_name});
  return format;
}

void say_counted(Log& log, const corpus::CountedCorpus& corpus) {
  log.info("read {} of text: {} pieces, {} distinct pieces kept{}", bytes_text(corpus.bytes),
           count_text(corpus.pieces), corpus.kept.pieces().size(),
           corpus.passes > 1
               ? fmt::format(" ({} passes, because of the limit on memory)", corpus.passes)
               : "");
  if (corpus.kept.dropped() > 0)
    log.warning(
        "dropped {} distinct pieces that occur less than {} times ({} occurrences in total), "
        "because they did not fit into --memory. Increase --memory to keep them.",
        corpus.kept.dropped(), corpus.kept.threshold(), corpus.kept.dropped_occurrences());
  if (corpus.too_long > 0)
    log.warning("ignored {} pieces of more than {} bytes", corpus.too_long,
                corpus::most_piece_bytes);
}

void train_on(const corpus::CountedCorpus& corpus,
              const TrainOptions& words,
              text::Pattern pattern,
              Log& log,
              StageProgress& progress) {
  if (corpus.bytes == 0)
    throw UserError({Diagnostic{{}, "--text", "the files contain no text"}});
  say_counted(log, corpus);
  if (corpus.kept.pieces().empty())
    throw UserError({Diagnostic{
        {},
        "--text",
        fmt::format("all pieces of the text have more than {} bytes. Break it into lines",
                    corpus::most_piece_bytes)}});
  const auto vocabulary = corpus::train_vocabulary(
      corpus.kept.pieces(),
      {.pattern = pattern, .vocabulary = words.vocabulary, .progress = &progress});
  if (std::ssize(vocabulary.tokens) < words.vocabulary)
    log.warning("{} ids instead of {}: the text is too small for more merges",
                vocabulary.tokens.size(), words.vocabulary);
  corpus::write_tokenizer(words.output, vocabulary, corpus::training_json(vocabulary, corpus));
  log.info("{}: {} ids, pattern {}, {:.3f} bytes per token in the pieces that were kept",
           words.output, vocabulary.tokens.size(), words.pattern,
           corpus::bytes_per_token(vocabulary, corpus.kept.pieces()));
}

ExitCode train(comm::World& world, const TrainOptions& words) {
  Log log(world.rank() == 0, fmt::format("rank {}", world.rank()));
  const text::Pattern pattern = value_named<text::Pattern>(words.pattern).value();
  const auto files = files_of(world, words, log);
  StageProgress progress(log);
  corpus::CountRequest request{
      .pattern = pattern,
      .threads = words.threads > 0 ? words.threads : session::choose_threads({}, world),
      .memory_bytes = static_cast<std::int64_t>(words.memory_gib * 1024 * 1024 * 1024),
      .progress = &progress};
  const corpus::CountedCorpus corpus = corpus::count_texts(files, format_of(words), request, world);
  comm::on_first_rank(world, [&] { train_on(corpus, words, pattern, log, progress); });
  return ExitCode::done;
}

}  // namespace

Action declare_tokenizer_train(CLI::App& command) {
  const auto words = std::make_shared<TrainOptions>();
  add_text(command, words->files)->required();
  add_field(command, words->field);
  command
      .add_option("--vocabulary", words->vocabulary, "Number of token ids, including end of text.")
      ->required()
      ->check(CLI::Range(corpus::least_vocabulary, corpus::most_vocabulary));
  command
      .add_option(
          "--pattern", words->pattern,
          "Pattern that splits text into pieces: " + text::pattern_names() + ". Default: gpt2.")
      ->check([](const std::string& word) {
        return value_named<text::Pattern>(word) ? "" : "not one of " + text::pattern_names();
      });
  command.add_option("--output", words->output, "Output directory, which must not exist.")
      ->required();
  command
      .add_option("--memory", words->memory_gib,
                  "Memory per rank in GiB. Default: 4. With less memory, counting needs more "
                  "passes and rare pieces are dropped.")
      ->check(CLI::Range(0.001, 1e6));
  command
      .add_option("--threads", words->threads,
                  "Threads per rank. Default: the cores of the host divided by its ranks.")
      ->check(CLI::Range(1, 1024));
  return [words](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return train(world, *words); });
  };
}

}  // namespace trireme::cli
