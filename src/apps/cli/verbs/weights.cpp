// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/log.hpp"
#include "base/text.hpp"
#include "device/recorder.hpp"

#include "weights/export.hpp"
#include "weights/import.hpp"

#include "session/config.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"
#include "deck/config.hpp"

namespace trireme::cli {
namespace {

constexpr std::pair<weights::StoredType, const char*> dtype_words[] = {
    {weights::StoredType::f32, "fp32"},
    {weights::StoredType::bf16, "bf16"},
    {weights::StoredType::f16, "fp16"},
    {weights::StoredType::q8_0, "q8_0"}};

void run_export(const weights::ExportRequest& request) {
  Log log(true, "trireme");
  const double begin = device::steady_seconds();
  const weights::Exported done = weights::export_model(request);
  for (const std::string& note : done.notes) log.info("{}", note);
  log.info("{}: {} parameters of {} in {}, {} in {}", request.output, count_text(done.parameters),
           done.source, bytes_text(done.bytes), counted(std::ssize(done.files), "file"),
           duration_text(device::steady_seconds() - begin));
}

struct ImportOptions {
  weights::ImportRequest request;
  std::string tokenizer;
};

ExitCode run_import(comm::World& world, const ImportOptions& words) {
  Log log(world.rank() == 0, fmt::format("rank {}", world.rank()));
  const double begin = device::steady_seconds();
  weights::ImportRequest request = words.request;
  request.without_tokenizer = words.tokenizer == "none";
  if (!request.without_tokenizer && !words.tokenizer.empty())
    request.tokenizer = shared_tokenizer(world, words.tokenizer);
  request.build = build_facts();
  const weights::Imported done = weights::import_model(request, world);
  const model::GptShape& shape = done.shape;
  for (const std::string& note : done.notes) log.warning("{}", note);
  log.info("{}: {} parameters of {} ({}, hash {:016x}) in {}, {} in {}", request.output,
           count_text(done.parameters), done.origin.path, done.origin.format, done.origin.hash,
           bytes_text(done.bytes), counted(world.size(), "rank"),
           duration_text(device::steady_seconds() - begin));
  log.info(
      "{} layers, {} heads, {} channels, context {}, vocabulary {}. Continue with a deck with "
      "these sizes, run.directory: {} and run.seed: {}",
      shape.layers, shape.heads, shape.channels, shape.context, shape.vocabulary, request.output,
      request.seed);
  log.info("in a deck: {}", deck::model_section(shape));
  return ExitCode::done;
}

}  // namespace

Action declare_export(CLI::App& command) {
  const auto request = std::make_shared<weights::ExportRequest>();
  command
      .add_option("RUN_DIR", request->source,
                  "A run directory, a checkpoint, or weights in another supported format.")
      ->required();
  add_word(command, "--format", "Format of the output.", EnumNames<weights::ExportFormat>::table,
           request->format)
      ->required();
  command.add_option("--output", request->output, "Output directory, which must not exist.")
      ->required();
  add_word(command, "--dtype",
           "Data type of the weights. Default: fp32. bf16 is rounded to nearest even. gguf: also "
           "fp16, and q8_0 with 8 bits for each weight and a factor for 32.",
           dtype_words, request->type);
  command.add_option("--step", request->step, "Step of the checkpoint. Default: the newest.")
      ->check(whole_number);
  add_word(command, "--rows",
           "Rows of the vocabulary to export: all rows of the model, or only those of the "
           "tokenizer's tokens. Default: model.",
           EnumNames<weights::ExportRows>::table, request->rows);
  command
      .add_option("--shard-bytes", request->shard_bytes,
                  "Maximum size of a safetensors file in bytes, unless a single tensor is larger. "
                  "Default: 5000000000.")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 62));
  return [request](Arguments) {
    run_export(*request);
    return ExitCode::done;
  };
}

Action declare_import(CLI::App& command) {
  const auto words = std::make_shared<ImportOptions>();
  command
      .add_option("DIR_OR_FILE", words->request.source,
                  "A folder of Hugging Face transformers, a model file of llm.c, a run directory "
                  "or a checkpoint.")
      ->required();
  command.add_option("--output", words->request.output, "New run directory.")->required();
  command.add_option("--tokenizer", words->tokenizer,
                     "Tokenizer file or directory, or bytes. Default: the tokenizer next to the "
                     "weights. none: the model will not process text.");
  words->request.seed = static_cast<std::uint64_t>(session::RunConfig{}.seed);
  command
      .add_option("--seed", words->request.seed,
                  "run.seed of the run that continues from these weights. Default: 1337.")
      ->check(whole_number);
  return [words](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return run_import(world, *words); });
  };
}

}  // namespace trireme::cli
