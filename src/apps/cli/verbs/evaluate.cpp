// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/log.hpp"

#include "comm/control/together.hpp"

#include "inference/evaluate_run.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {
namespace {

struct EvaluateOptions {
  inference::EvaluateRequest request;
  std::string json;
};

ExitCode evaluate(comm::World& world, const EvaluateOptions& options) {
  const inference::EvaluateRequest& r = options.request;
  if (r.data.text.empty() && r.data.tokens.empty() && r.data.multiple_choice.empty())
    throw UserError("there is nothing to evaluate. Give --text, --tokens or --multiple-choice.");
  comm::on_first_rank(world, [&] { expect_new_file(options.json); });
  Log log(false, fmt::format("rank {} {}", world.rank(), world.host()));
  const inference::Evaluated evaluated = inference::evaluate_run(r, world, log);
  comm::on_first_rank(world, [&] {
    give_result(inference::evaluation_table(evaluated), options.json,
                inference::evaluation_json(evaluated));
  });
  return ExitCode::done;
}

}  // namespace

Action declare_evaluate(CLI::App& command) {
  const auto options = std::make_shared<EvaluateOptions>();
  inference::EvaluateRequest& request = options->request;
  add_model(command, request.source);
  auto* text = add_text(command, request.data.text);
  command
      .add_option("--tokens", request.data.tokens,
                  "Token files and globs: .bin of llm.c, or .bin of Megatron with .idx.")
      ->excludes(text);
  add_field(command, request.data.field)->needs(text);
  auto* choice = command.add_option("--multiple-choice", request.data.multiple_choice,
                                    "File of multiple-choice questions.");
  add_choice(command, "--format",
             "Format of that file: hellaswag (of llm.c), or jsonl. Default: hellaswag.",
             EnumNames<batches::ChoiceFormat>::table,
             [&request](const auto& chosen) { request.data.format = chosen.back(); })
      ->expected(1)
      ->needs(choice);
  add_json(command, options->json);
  return [options](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return evaluate(world, *options); });
  };
}

}  // namespace trireme::cli
