// SPDX-License-Identifier: Apache-2.0
#include "corpus/tokenize.hpp"

#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/log.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {
namespace {

struct TokenizeOptions {
  std::string tokenizer = "bytes", field, separator = "auto";
  tokens::BadLines bad_lines = tokens::BadLines::stop;
  corpus::TokenizeRequest request;
};

ExitCode tokenize(comm::World& world, const TokenizeOptions& options) {
  corpus::TokenizeRequest request = options.request;
  request.tokenizer = shared_tokenizer(world, options.tokenizer);
  request.format = tokens::text_format(options.field, options.separator, options.bad_lines,
                                       *request.tokenizer, "--separator");
  Log log(world.rank() == 0, fmt::format("rank {} {}", world.rank(), world.host()));
  corpus::tokenize(request, world, log);
  return ExitCode::done;
}

}  // namespace

Action declare_tokenize(CLI::App& command) {
  const auto options = std::make_shared<TokenizeOptions>();
  corpus::TokenizeRequest& request = options->request;
  command
      .add_option("--tokenizer", options->tokenizer,
                  "A tokenizer file, a directory with one, or the word bytes.")
      ->required();
  add_text(command, request.text)->required();
  command
      .add_option("--output", request.output,
                  "Prefix of the token files: PREFIX_train_000000.bin, ...")
      ->required();
  CLI::Option* const field = add_field(command, options->field);
  command.add_option(
      "--separator", options->separator,
      "What stands between documents in plain text: auto (the tokenizer's end-of-text "
      "token), none, blank-line, or the separator itself.");
  add_word(command, "--bad-lines",
           "Lines that are not JSON objects with the field: stop, or skip and count them.",
           EnumNames<tokens::BadLines>::table, options->bad_lines)
      ->needs(field);
  command
      .add_option("--validation-fraction", request.validation_fraction,
                  "Approximate share of documents for validation, chosen by hash. Default: 0.")
      ->check(CLI::Range(0.0, 1.0))
      ->check(is_number);
  command
      .add_option(
          "--shard-bytes", request.shard_bytes,
          "Bytes of text per token file, also the unit of work of a rank. Default: 104857600.")
      ->check(CLI::Range(corpus::least_shard_bytes, corpus::most_shard_bytes));
  return [options](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return tokenize(world, *options); });
  };
}

}  // namespace trireme::cli
