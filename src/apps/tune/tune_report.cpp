// SPDX-License-Identifier: Apache-2.0
#include "tune/tune_report.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/quantile.hpp"
#include "base/text.hpp"

#include "deck/deck.hpp"

namespace trireme::tune {
namespace {

constexpr std::string_view first_comment = "# trireme tune: ";

std::string ratio_text(const Ratio& ratio) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", ratio.median, ratio.low, ratio.high);
}

std::string run_words(const Tuning& tuning, const Run& run) {
  return words_of(differences(tuning.runs.front().candidate.config, run.candidate.config));
}

std::string where(const Tuning& tuning) {
  return fmt::format("{} on {}, {}", counted(tuning.ranks, "rank"), counted(tuning.hosts, "host"),
                     tuning.processor);
}

/// The measured times, their ratio and the decision.
std::string verdict(const Tuning& tuning) {
  if (!tuning.repeated)
    return tuning.runs.size() == 1 ? "No other setting is possible. Keep the deck's values."
                                   : "No setting is measurably better (median ratio at most 0.990, "
                                     "upper quartile below 1). Keep the deck's values.";
  const Repeated& again = *tuning.repeated;
  const std::string once_more = fmt::format(
      "{}, repeated against the deck's values in {} rounds: median times {} and {}, median ratio "
      "{}",
      run_words(tuning, tuning.runs[again.run]), again.seconds.size(),
      step_time_text(median(again.seconds)), step_time_text(median(again.own_seconds)),
      ratio_text(again.ratio));
  return once_more + (&tuning.chosen() != tuning.runs.data()
                          ? "\nChosen: " + run_words(tuning, tuning.runs[again.run])
                          : "\nThis is not measurably better (median ratio at most 0.990, at most "
                            "one round in eight above 1). Keep the deck's values.");
}

Json values_json(const std::vector<deck::KeyValue>& values) {
  Json object = Json::object();
  for (const deck::KeyValue& value : values) object[value.path] = value.value;
  return object;
}

/// The text without the comments of an earlier tuning and the empty line after them.
std::string without_comments(const std::string& bytes) {
  if (!bytes.starts_with(first_comment))
    return bytes;
  std::size_t begin = 0;
  while (begin < bytes.size() && bytes[begin] == '#') {
    const std::size_t end = bytes.find('\n', begin);
    begin = end == std::string::npos ? bytes.size() : end + 1;
  }
  if (begin < bytes.size() && bytes[begin] == '\n')
    ++begin;
  return bytes.substr(begin);
}

std::string comments(const Tuning& tuning,
                     const std::string& build,
                     const std::vector<std::string>& overrides) {
  std::string text = fmt::format("{}\n{}\n", where(tuning), build);
  text += tuning_table(tuning);
  std::string others;
  for (const std::string& word : overrides) {
    const std::string path = word.substr(0, word.find('='));
    const auto values = values_of(tuning.runs.front().candidate.config);
    if (std::ranges::find(values, path, &deck::KeyValue::path) == values.end())
      others += " " + word;
  }
  if (!others.empty())
    text += fmt::format("Measured with these overrides of the deck:{}\n", others);
  std::istringstream lines(text);
  std::string block;
  for (std::string line; std::getline(lines, line);)
    block += block.empty() ? std::string(first_comment) + line + "\n" : "#   " + line + "\n";
  return block + "\n";
}

}  // namespace

std::string tuning_table(const Tuning& tuning) {
  std::size_t width = 0;
  for (const Run& run : tuning.runs) width = std::max(width, run_words(tuning, run).size());
  std::string text = fmt::format("{:<{}}{:>12}{:>12}  {:<24}{}\n", "step", width, "memory",
                                 "measured", "ratio (quartiles)*", "bits");
  for (const Run& run : tuning.runs) {
    const Candidate& one = run.candidate;
    text += fmt::format("{:<{}}{:>12}{:>12}  {:<24}{}\n", run_words(tuning, run), width,
                        bytes_text(one.memory_bytes),
                        run.seconds.empty() ? "-" : step_time_text(median(run.seconds)),
                        run.seconds.empty() ? "-" : ratio_text(run.ratio),
                        one.changes_bits ? "change" : "same");
  }
  text +=
      "* The median over the rounds of the step's time divided by that of the deck's values in the "
      "same round. It decides, not the ratio of the median times, which a change of the machine's "
      "speed between rounds distorts.\n";
  text += fmt::format("{} settings were tried; {} others need more than {} per rank.\n",
                      tuning.tried, tuning.too_large, bytes_text(tuning.memory_bytes));
  text += verdict(tuning) + "\n";
  if (tuning.chosen().candidate.changes_bits)
    text +=
        "The setting changes rounding: losses differ in their last digits from those with the "
        "deck's values. Use --same-bits to exclude such settings.\n";
  return text;
}

std::string tuning_json(const Tuning& tuning) {
  const auto quartiles = [](const Ratio& ratio) { return Json{ratio.low, ratio.high}; };
  Json runs = Json::array(), repeated;
  for (const Run& run : tuning.runs)
    runs.push_back({{"values", values_json(values_of(run.candidate.config))},
                    {"transport", word(run.candidate.wire)},
                    {"changes_bits", run.candidate.changes_bits},
                    {"memory_bytes", run.candidate.memory_bytes},
                    {"measured_s", run.seconds},
                    {"ratio", run.ratio.median},
                    {"ratio_quartiles", quartiles(run.ratio)}});
  if (const auto& again = tuning.repeated)
    repeated = {{"run", again->run},
                {"measured_s", again->seconds},
                {"own_measured_s", again->own_seconds},
                {"ratio", again->ratio.median},
                {"ratio_quartiles", quartiles(again->ratio)}};
  const Json report = {{"filetype", "trireme-tune"},
                       {"version", {2, 0}},
                       {"ranks", tuning.ranks},
                       {"hosts", tuning.hosts},
                       {"processor", tuning.processor},
                       {"memory_bytes", tuning.memory_bytes},
                       {"tried", tuning.tried},
                       {"too_large", tuning.too_large},
                       {"runs", runs},
                       {"repeated", repeated},
                       {"chosen", &tuning.chosen() - tuning.runs.data()}};
  return json_text(report);
}

std::optional<std::string> tuned_deck(const Tuning& tuning,
                                      const std::string& bytes,
                                      const std::string& build,
                                      const std::vector<std::string>& overrides) {
  const std::string plain = without_comments(bytes);
  std::vector<Diagnostic> ignored;
  const deck::Deck written = deck::read(plain, "", {}, deck::references_in(plain, {}), ignored);
  const auto edited =
      deck::with_values(plain, differences(written.config, tuning.chosen().candidate.config));
  if (!edited)
    return std::nullopt;
  return comments(tuning, build, overrides) + *edited;
}

}  // namespace trireme::tune
