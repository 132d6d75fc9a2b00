// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/packing.hpp"
#include "base/round_up.hpp"
#include "base/text.hpp"
#include "files/output_file.hpp"

#include "model/gpt.hpp"

#include "comm/control/together.hpp"

#include "tokens/documents.hpp"
#include "tokens/sources.hpp"

#include "inference/generate.hpp"
#include "inference/loaded_model.hpp"
#include "inference/next_logits.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {
namespace {

struct SampleOptions {
  inference::ModelSource source;
  std::string prompt = "int main", prompts, field, json;
  std::int64_t samples = 1;  ///< of each prompt
  /// tokens, distribution, seed and repetition; the rest follows from the tokenizer.
  inference::GenerateRules rules{.tokens = 256, .distribution = {.temperature = 0.8}, .seed = 1};
  bool ends = true;          ///< at the end of a text
  bool commands = false;     ///< special tokens may be spelled out in prompts
  std::int64_t at_once = 8;  ///< texts that grow together on a rank
  bool cache = true;         ///< keys and values are kept; never changes the text
};

/// By number, which counts the samples of all prompts.
using Numbered = std::pair<std::int64_t, inference::Generated>;

/// One prompt per line or JSON object; blank lines are ignored.
std::vector<std::string> read_prompts(const std::string& path, const std::string& field) {
  std::vector<std::string> prompts;
  tokens::Documents documents(tokens::find_file(path, "--prompts"), tokens::TextFormat(field));
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
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // of editors on Windows
  std::istringstream lines(
      all.substr(all.starts_with(byte_order_mark) ? byte_order_mark.size() : 0));
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

/// Prints texts as they are generated; on rank 0.
class Printer {
 public:
  Printer(const SampleOptions& options,
          const std::vector<std::string>& prompts,
          const text::Tokenizer& tokenizer)
      : options_(options), prompts_(prompts), tokenizer_(tokenizer) {}

  /// A token of a single text.
  void decided(std::int32_t token) {
    if (only_json_)
      return;
    begin();
    print(stream_.add(inference::decoded(tokenizer_, {&token, 1})));
  }
  void finished(std::int64_t number, const inference::Generated& generated) {
    const std::int64_t of_prompt = number / options_.samples, sample = number % options_.samples;
    const std::string& prompt = prompts_.at(static_cast<std::size_t>(of_prompt));
    const std::string text = inference::decoded(tokenizer_, generated.tokens);
    const std::string line = json_line({{"prompt", prompt},
                                        {"text", text},
                                        {"end", word(generated.end)},
                                        {"prompt_number", of_prompt},
                                        {"sample", sample},
                                        {"seed", options_.rules.seed},
                                        {"tokens", generated.tokens}}) +
                             "\n";
    if (only_json_) {
      print(line);
      return;
    }
    rows_ += line;
    if (prompts_.size() == 1 && options_.samples == 1) {
      begin();
      print(stream_.finish() + "\n");
      return;
    }
    print(fmt::format("== prompt {} of {}, sample {} of {} ==\n{}{}\n", of_prompt + 1,
                      prompts_.size(), sample + 1, options_.samples, for_terminal(prompt),
                      for_terminal(text)));
  }
  void write() const {
    if (!only_json_ && !options_.json.empty())
      files::write_new_file(options_.json, rows_);
  }

 private:
  void begin() {
    if (!begun_)
      print(for_terminal(prompts_.at(0)));
    begun_ = true;
  }

  const SampleOptions& options_;
  const std::vector<std::string>& prompts_;
  const text::Tokenizer& tokenizer_;
  const bool only_json_ = options_.json == "-";
  Streamed stream_;
  std::string rows_;
  bool begun_ = false;
};

/// Texts are shared out over the ranks one by one; their random numbers follow from the seed and
/// their number alone, so they are the same on any number of ranks.
ExitCode sample(comm::World& world, const SampleOptions& options) {
  const auto prompts = comm::from_first_rank(world, [&] {
    expect_new_file(options.json);
    return options.prompts.empty() ? std::vector<std::string>{options.prompt}
                                   : read_prompts(options.prompts, options.field);
  });
  Log log(false,
          fmt::format("rank {} {}", world.rank(), world.host()));  // standard output is for text
  const inference::LoadedModel loaded = inference::load_model(options.source, world, log);
  const text::Tokenizer& tokenizer = loaded.known_tokenizer();
  const weights::Roles roles = weights::roles_of(loaded.stored);
  inference::GenerateRules rules = options.rules;
  rules.alphabet = tokenizer.vocabulary();
  if (options.ends)
    rules.ends_of_text = roles.ends;
  std::vector<std::vector<std::int32_t>> tokens;  // of the prompts
  tokens.reserve(prompts.size());
  for (const std::string& prompt : prompts)
    tokens.push_back(inference::prompt_tokens(tokenizer, prompt, options.commands, roles.begin));
  const std::size_t longest = std::ranges::max(tokens, {}, &std::vector<std::int32_t>::size).size();
  const std::int64_t texts = std::ssize(prompts) * options.samples;
  nn::Hooks hooks;
  std::optional<model::Gpt> gpt;
  std::optional<inference::NextLogits> logits;
  if (options.cache) {
    const nn::CacheSize slots{
        .sequences = std::clamp<std::int64_t>(divided_up(texts, world.size()), 1, options.at_once),
        .positions = std::min(loaded.shape().context,
                              static_cast<std::int64_t>(longest) + options.rules.tokens)};
    logits.emplace(*loaded.device, loaded.shape(), DType::f32, loaded.parameters.views, slots,
                   hooks, *loaded.stream);
  } else {
    gpt.emplace(*loaded.device, loaded.shape(), DType::f32, 1, 0);
    gpt->bind(loaded.parameters.views, {});
    logits.emplace(*gpt, *loaded.device, hooks, *loaded.stream);
  }
  Printer printer(options, prompts, tokenizer);
  // Each round is a few times what grows at once, so that what ends early makes room.
  const std::int64_t round = std::int64_t{world.size()} * 4 * options.at_once;
  for (std::int64_t begin = 0; begin < texts; begin += round) {
    std::vector<inference::GenerateRequest> mine;
    for (std::int64_t i = begin; i < std::min(texts, begin + round); ++i)
      if (i % world.size() == world.rank())
        mine.push_back(
            {tokens[static_cast<std::size_t>(i / options.samples)], static_cast<std::uint64_t>(i)});
    std::vector<Numbered> made;
    comm::together(world, [&] {
      auto generated =
          inference::generate(*logits, mine, rules, [&](std::size_t /*text*/, std::int32_t token) {
            if (texts == 1)
              printer.decided(token);
          });
      for (std::size_t i = 0; i < mine.size(); ++i)
        made.emplace_back(mine[i].sample, std::move(generated[i]));
    });
    const auto of_ranks = world.gather(pack(made));
    comm::on_first_rank(world, [&] {
      std::vector<Numbered> all;
      for (const std::string& bytes : of_ranks)
        std::ranges::move(unpack<std::vector<Numbered>>(bytes), std::back_inserter(all));
      std::ranges::sort(all, {}, &Numbered::first);
      for (const auto& [number, generated] : all) printer.finished(number, generated);
    });
  }
  comm::on_first_rank(world, [&] { printer.write(); });
  return ExitCode::done;
}

void add_options(CLI::App& command, SampleOptions& options) {
  inference::GenerateRules& rules = options.rules;
  constexpr std::int64_t many = std::int64_t{1} << 30U;
  add_model(command, options.source);
  auto* prompt =
      command.add_option("--prompt", options.prompt, "Text to continue. Default: int main.");
  auto* prompts =
      command.add_option("--prompts", options.prompts, "File of prompts, one per nonblank line.")
          ->excludes(prompt);
  command
      .add_option("--field", options.field,
                  "The file is JSON lines with the prompt under this key.")
      ->needs(prompts);
  command.add_option("--samples", options.samples, "Number of texts per prompt. Default: 1.")
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
      "--special-tokens", options.commands,
      "Encode special tokens that are spelled out in a prompt (<|endoftext|>) as these "
      "tokens. Default: as ordinary text. Do not use it for untrusted prompts.");
  command.add_flag("!--ignore-end", options.ends, "Do not stop at the end-of-text token.");
  command
      .add_option("--batch", options.at_once,
                  "Number of texts that a rank generates at the same time. Default: 8.")
      ->check(CLI::Range(1, 64));
  command.add_flag("!--no-cache", options.cache,
                   "Do not cache keys and values. Slower, with the same text.");
  add_json(command, options.json,
           "Write one JSON object per text and line to this file, which must not exist. With -, "
           "print them instead of the text.");
}

}  // namespace

Action declare_sample(CLI::App& command) {
  const auto options = std::make_shared<SampleOptions>();
  add_options(command, *options);
  return [options](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return sample(world, *options); });
  };
}

}  // namespace trireme::cli
