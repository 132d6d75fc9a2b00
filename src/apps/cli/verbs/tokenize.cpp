// SPDX-License-Identifier: Apache-2.0
#include "corpus/tokenize.hpp"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "base/log.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/together.hpp"

#include "text/tokenizer.hpp"

#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {
namespace {

struct TokenizeWords {
  std::string tokenizer = "bytes";
  corpus::TokenizeRequest request;
};

ExitCode tokenize(comm::World& world, const TokenizeWords& asked) {
  corpus::TokenizeRequest request = asked.request;
  using Owner = comm::Fact::Owner;
  comm::expect_agreement(
      world,
      {{"--tokenizer", asked.tokenizer, Owner::user},
       {"--text", fmt::format("{}", fmt::join(request.text, " ")), Owner::user},
       {"--field", request.field, Owner::user},
       {"--output", request.output, Owner::user},
       {"--validation-fraction", fmt::format("{}", request.validation_fraction), Owner::user},
       {"--shard-bytes", fmt::format("{}", request.shard_bytes), Owner::user}});
  std::string serialized;
  comm::on_first_rank(world, [&] {
    serialized = (asked.tokenizer == "bytes" ? text::byte_tokenizer()
                                             : text::load_tokenizer(asked.tokenizer))
                     ->serialized();
  });
  request.tokenizer = text::tokenizer_from(world.broadcast(std::move(serialized), 0));
  Log log(world.rank() == 0, fmt::format("rank {} {}", world.rank(), world.host()));
  corpus::tokenize(request, world, log);
  return ExitCode::done;
}

}  // namespace

Action declare_tokenize(CLI::App& command) {
  const auto asked = std::make_shared<TokenizeWords>();
  corpus::TokenizeRequest& request = asked->request;
  command
      .add_option("--tokenizer", asked->tokenizer,
                  "A tokenizer's file, a directory with one, or bytes")
      ->required();
  command.add_option("--text", request.text, "Files, directories and globs; also .gz and .zst")
      ->required();
  command
      .add_option("--output", request.output, "Where shards go: PREFIX_train_000000.bin and so on")
      ->required();
  command.add_option("--field", request.field,
                     "The text is JSON lines, a document each, under this key");
  command
      .add_option("--validation-fraction", request.validation_fraction,
                  "About this share of the documents, by their hash")
      ->check(CLI::Range(0.0, 1.0))
      ->check([](const std::string& word) {
        return std::isnan(std::strtod(word.c_str(), nullptr)) ? "not a number" : "";
      });
  command
      .add_option("--shard-bytes", request.shard_bytes, "Text per shard; also what ranks share out")
      ->check(CLI::Range(corpus::least_shard_bytes, corpus::most_shard_bytes));
  return [asked](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return tokenize(world, *asked); });
  };
}

}  // namespace trireme::cli
