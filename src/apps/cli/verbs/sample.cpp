// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "files/output_file.hpp"

#include "comm/control/together.hpp"

#include "tokens/documents.hpp"
#include "tokens/sources.hpp"

#include "inference/text_sample.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {
namespace {

struct SampleOptions {
  inference::SampleRequest request;
  std::string prompt = "int main", prompts, field, json;
};

/// One prompt per line or JSON object; blank lines are ignored.
std::vector<std::string> read_prompts(const std::string& path, const std::string& field) {
  std::vector<std::string> prompts;
  tokens::Documents documents(tokens::find_shards({path}, "--prompts").at(0), field);
  std::string all;
  for (tokens::TextPiece piece; documents.next(piece);) {
    if (field.empty()) {
      all += piece.text;
    } else {
      if (piece.begins_document)
        prompts.emplace_back();
      prompts.back() += piece.text;
    }
  }
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r'))
      line.pop_back();
    if (!line.empty())
      prompts.push_back(std::move(line));
  }
  if (prompts.empty())
    throw UserError(Place{path}, "the file contains no prompt");
  return prompts;
}

std::string json_line(const inference::Sampled& sampled,
                      const std::string& prompt,
                      std::uint64_t seed) {
  return json_text({{"prompt", prompt},
                    {"text", sampled.text},
                    {"end", word(sampled.end)},
                    {"prompt_number", sampled.prompt},
                    {"sample", sampled.sample},
                    {"seed", seed},
                    {"tokens", sampled.tokens}},
                   -1);
}

/// Prints texts as they are generated; on rank 0.
class Printer {
 public:
  Printer(const SampleOptions& options, const inference::SampleRequest& request)
      : options_(options),
        request_(request),
        only_json_(options.json == "-"),
        single_(request.prompts.size() == 1 && request.samples == 1) {}

  void decided(const std::string& bytes) {
    if (only_json_)
      return;
    begin();
    print(stream_.add(bytes));
  }
  void finished(const inference::Sampled& sampled) {
    const std::string& prompt = request_.prompts.at(static_cast<std::size_t>(sampled.prompt));
    const std::string line = json_line(sampled, prompt, request_.rules.seed);
    if (only_json_) {
      print(line);
      return;
    }
    rows_ += line;
    if (single_) {
      begin();
      print(stream_.finish() + "\n");
      return;
    }
    print(fmt::format("== prompt {} of {}, sample {} of {} ==\n{}{}\n", sampled.prompt + 1,
                      request_.prompts.size(), sampled.sample + 1, request_.samples,
                      for_terminal(prompt), for_terminal(sampled.text)));
  }
  void write() const {
    if (!only_json_ && !options_.json.empty())
      files::write_new_file(options_.json, rows_);
  }

 private:
  void begin() {
    if (!begun_)
      print(for_terminal(request_.prompts.at(0)));
    begun_ = true;
  }

  const SampleOptions& options_;
  const inference::SampleRequest& request_;
  const bool only_json_, single_;
  Streamed stream_;
  std::string rows_;
  bool begun_ = false;
};

ExitCode sample(comm::World& world, const SampleOptions& options) {
  inference::SampleRequest request = options.request;
  comm::on_first_rank(world, [&] {
    expect_new_file(options.json);
    request.prompts = options.prompts.empty() ? std::vector<std::string>{options.prompt}
                                              : read_prompts(options.prompts, options.field);
  });
  Log log(false,
          fmt::format("rank {} {}", world.rank(), world.host()));  // standard output is for text
  Printer printer(options, request);
  inference::sample_run(request, world, log,
                        {[&](const std::string& bytes) { printer.decided(bytes); },
                         [&](const inference::Sampled& sampled) { printer.finished(sampled); }});
  comm::on_first_rank(world, [&] { printer.write(); });
  return ExitCode::done;
}

void add_options(CLI::App& command, SampleOptions& options) {
  inference::SampleRequest& request = options.request;
  inference::GenerateRules& rules = request.rules;
  constexpr std::int64_t many = std::int64_t{1} << 30U;
  add_model(command, request.source);
  auto* prompt =
      command.add_option("--prompt", options.prompt, "Text to continue. Default: int main.");
  auto* prompts =
      command.add_option("--prompts", options.prompts, "File of prompts, one per line.")
          ->excludes(prompt);
  command
      .add_option("--field", options.field,
                  "The file is JSON lines with the prompt under this key.")
      ->needs(prompts);
  command.add_option("--samples", request.samples, "Number of texts per prompt. Default: 1.")
      ->check(CLI::Range(std::int64_t{1}, many));
  command
      .add_option("--tokens", rules.tokens, "Maximum number of tokens to generate. Default: 256.")
      ->check(CLI::Range(std::int64_t{1}, many));
  command
      .add_option("--temperature", rules.distribution.temperature,
                  "Sampling temperature. Default: 0.8. 0: always choose the most likely token.")
      ->check(CLI::Range(0.0, 100.0))
      ->check(is_number);
  command
      .add_option("--top-k", rules.distribution.top_k,
                  "Sample from the K most likely tokens. Default: 0, from all.")
      ->check(CLI::Range(std::int64_t{0}, many));
  command
      .add_option("--top-p", rules.distribution.top_p,
                  "Nucleus sampling: sample from the smallest set of tokens whose total "
                  "probability reaches P. Default: 1.")
      ->check(CLI::Validator(
          [](const std::string& word) {
            const double p = std::strtod(word.c_str(), nullptr);
            return p > 0 && p <= 1 ? "" : "must be above 0 and at most 1";
          },
          "in (0, 1]"))
      ->check(is_number);
  command.add_option("--seed", rules.seed, "Random seed. Default: 1.")->check(whole_number);
  command
      .add_option("--stop-repetition", rules.repetition,
                  "End a text when its last N tokens occur in it before. Default: 0, never.")
      ->check(CLI::Range(std::int64_t{0}, many));
  command.add_flag(
      "--special-tokens", request.commands,
      "Encode special tokens that are spelled out in a prompt (<|endoftext|>) as these "
      "tokens. Default: as ordinary text. Do not use it for untrusted prompts.");
  command.add_flag("!--ignore-end", request.ends, "Do not stop at the end-of-text token.");
  command
      .add_option("--batch", request.at_once,
                  "Number of texts that a rank generates at the same time. Default: 8.")
      ->check(CLI::Range(1, 64));
  command.add_flag("!--no-cache", request.cache,
                   "Do not cache keys and values. Slower, with the same text.");
  command.add_option("--json", options.json,
                     "Write one JSON object per text and line to this file, which must not exist. "
                     "With -, print them instead of the text.");
}

}  // namespace

Action declare_sample(CLI::App& command) {
  const auto options = std::make_shared<SampleOptions>();
  options->request.rules = {.tokens = 256, .distribution = {.temperature = 0.8}, .seed = 1};
  add_options(command, *options);
  return [options](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return sample(world, *options); });
  };
}

}  // namespace trireme::cli
