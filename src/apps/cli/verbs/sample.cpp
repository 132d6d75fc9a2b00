// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.hpp"
#include "files/output_file.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/together.hpp"

#include "text/terminal.hpp"
#include "tokens/documents.hpp"
#include "tokens/sources.hpp"

#include "inference/text_sample.hpp"

#include "cli/new_file.hpp"
#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {
namespace {

struct SampleWords {
  inference::SampleRequest request;
  std::string prompt = "int main", prompts, field, json;
};

/// One prompt per line or JSON object; blank lines count for nothing.
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
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    std::string line = all.substr(at, end - at);
    if (line.ends_with('\r'))
      line.pop_back();
    if (!line.empty())
      prompts.push_back(std::move(line));
    at = end + 1;
  }
  if (prompts.empty())
    throw UserError(Place{path}, "no prompt in this file");
  return prompts;
}

std::string json_line(const inference::Sampled& sampled,
                      const std::string& prompt,
                      std::uint64_t seed) {
  return fmt::format(
      "{{\"prompt\": {}, \"text\": {}, \"end\": \"{}\", \"prompt_number\": {}, \"sample\": {}, "
      "\"seed\": {}, \"tokens\": [{}]}}\n",
      text::json_string(prompt), text::json_string(sampled.text), inference::name(sampled.end),
      sampled.prompt, sampled.sample, seed, fmt::join(sampled.tokens, ", "));
}

/// Prints texts as they come; on the first rank.
class Printer {
 public:
  Printer(const SampleWords& asked, const inference::SampleRequest& request)
      : asked_(asked),
        request_(request),
        only_json_(asked.json == "-"),
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
                      text::for_terminal(prompt), text::for_terminal(sampled.text)));
  }
  void write() const {
    if (!only_json_ && !asked_.json.empty())
      files::write_new_file(asked_.json, rows_);
  }

 private:
  void begin() {
    if (!begun_)
      print(text::for_terminal(request_.prompts.at(0)));
    begun_ = true;
  }

  const SampleWords& asked_;
  const inference::SampleRequest& request_;
  const bool only_json_, single_;
  text::Streamed stream_;
  std::string rows_;
  bool begun_ = false;
};

std::vector<comm::Fact> facts_of(const SampleWords& asked) {
  const inference::SampleRequest& r = asked.request;
  const inference::Distribution& d = r.rules.distribution;
  return {{"MODEL", r.source.path},
          {"--step", fmt::format("{}", r.source.step.value_or(-1))},
          {"--prompt", asked.prompt},
          {"--prompts", asked.prompts},
          {"--field", asked.field},
          {"--samples", fmt::format("{}", r.samples)},
          {"--tokens", fmt::format("{}", r.rules.tokens)},
          {"--temperature", fmt::format("{}", d.temperature)},
          {"--top-k", fmt::format("{}", d.top_k)},
          {"--top-p", fmt::format("{}", d.top_p)},
          {"--seed", fmt::format("{}", r.rules.seed)},
          {"--stop-repetition", fmt::format("{}", r.rules.repetition)},
          {"--ignore-end", fmt::format("{}", !r.ends)},
          {"--batch", fmt::format("{}", r.at_once)},
          {"--no-cache", fmt::format("{}", !r.cache)},
          {"--json", asked.json}};
}

ExitCode sample(comm::World& world, const SampleWords& asked) {
  comm::expect_agreement(world, facts_of(asked));
  inference::SampleRequest request = asked.request;
  comm::on_first_rank(world, [&] {
    expect_new_file(asked.json);
    request.prompts = asked.prompts.empty() ? std::vector<std::string>{asked.prompt}
                                            : read_prompts(asked.prompts, asked.field);
  });
  Log log(false, fmt::format("rank {} {}", world.rank(), world.host()));  // standard output is text
  Printer printer(asked, request);
  inference::sample_run(request, world, log,
                        {[&](const std::string& bytes) { printer.decided(bytes); },
                         [&](const inference::Sampled& sampled) { printer.finished(sampled); }});
  comm::on_first_rank(world, [&] { printer.write(); });
  return ExitCode::done;
}

std::string no_number(const std::string& word) {
  return std::isnan(std::strtod(word.c_str(), nullptr)) ? "not a number" : "";
}

void add_options(CLI::App& command, SampleWords& asked) {
  inference::SampleRequest& request = asked.request;
  inference::GenerateRules& rules = request.rules;
  constexpr std::int64_t many = std::int64_t{1} << 30U;
  add_model(command, request.source);
  auto* prompt = command.add_option("--prompt", asked.prompt, "What the text continues");
  auto* prompts =
      command.add_option("--prompts", asked.prompts, "A file of prompts, one in each line")
          ->excludes(prompt);
  command
      .add_option("--field", asked.field,
                  "That file is JSON lines; a prompt is the text under this key")
      ->needs(prompts);
  command.add_option("--samples", request.samples, "Texts for each prompt")
      ->check(CLI::Range(std::int64_t{1}, many));
  command.add_option("--tokens", rules.tokens, "The most tokens of a text")
      ->check(CLI::Range(std::int64_t{1}, many));
  command
      .add_option("--temperature", rules.distribution.temperature,
                  "0: the most likely token each time")
      ->check(CLI::Range(0.0, 100.0))
      ->check(no_number);
  command
      .add_option("--top-k", rules.distribution.top_k,
                  "Draw from the most likely tokens only; 0: from all")
      ->check(CLI::Range(std::int64_t{0}, many));
  command
      .add_option("--top-p", rules.distribution.top_p,
                  "Draw from the fewest most likely tokens that have this probability together")
      ->check(CLI::Range(0.0, 1.0))
      ->check([](const std::string& word) {
        return std::strtod(word.c_str(), nullptr) == 0 ? "no token has a probability of 0" : "";
      })
      ->check(no_number);
  command.add_option("--seed", rules.seed, "Another seed gives another text")->check(whole_number);
  command
      .add_option("--stop-repetition", rules.repetition,
                  "GenerateEnd a text when its newest N tokens occur in it already; 0: do not")
      ->check(CLI::Range(std::int64_t{0}, many));
  command.add_flag("!--ignore-end", request.ends, "Go on over the end-of-text token");
  command.add_option("--batch", request.at_once, "Texts that grow together on a rank")
      ->check(CLI::Range(1, 64));
  command.add_flag("!--no-cache", request.cache,
                   "Compute the whole context for each token; the text is the same");
  command.add_option("--json", asked.json,
                     "Write a JSON object per text and line into this new file; - prints them "
                     "instead of the text");
}

}  // namespace

Action declare_sample(CLI::App& command) {
  const auto asked = std::make_shared<SampleWords>();
  asked->request.rules = {.tokens = 256, .distribution = {.temperature = 0.8}, .seed = 1};
  add_options(command, *asked);
  return [asked](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return sample(world, *asked); });
  };
}

}  // namespace trireme::cli
