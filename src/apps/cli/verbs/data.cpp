// SPDX-License-Identifier: Apache-2.0
// trireme data: which documents a step of a run uses, and which steps use a document. The order of
// samples is that of training, from the newest checkpoint on where the run has one.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"

#include "comm/control/temporary_directory.hpp"

#include "batches/provenance.hpp"

#include "record/checkpoint/manifest.hpp"

#include "session/session.hpp"
#include "session/stop.hpp"
#include "train/resume.hpp"

#include "cli/options.hpp"
#include "cli/verb.hpp"
#include "deck/survey.hpp"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct DataOptions {
  DeckArguments deck;
  int ranks = 1;
  std::vector<batches::Range> steps;
  std::string file, json;  ///< of a document
  std::int64_t offset = -1;
};

/// The training data of a run, and how far the run is.
class RunData {
 public:
  explicit RunData(const session::Job& job) : job_(job), sizes_(job.batch.sizes()) {
    std::string cache = job.run.directory + "/tokens";
    if (!fs::exists(cache))
      cache = temporary_.emplace(*world_).path();
    data_.emplace(session::open_data(job, cache, *world_, log_, &sources_));
    for (const batches::Stream& stream : sources_.train) origins_.emplace_back(stream);
    resume();
  }

  /// Adds a row for each document of each sample of a step.
  void add_step(std::int64_t step) {
    each_sample(step, [&](std::int64_t sample, const Window& window, std::int64_t begin) {
      const std::int64_t end = begin + job_.shape.context + 1;
      while (begin < end) {
        const batches::Document document = origins_[window.part].document(begin);
        add_row(step, sample, window, document, begin, end);
        begin = document.end;
      }
    });
  }
  /// Adds a row for each sample that has tokens of the document at a byte, or token, of a file.
  void add_document(const std::string& file, std::int64_t offset) {
    std::vector<std::optional<batches::Document>> found;
    for (batches::Provenance& origin : origins_) found.push_back(origin.find(file, offset));
    if (std::ranges::none_of(found, [](const auto& one) { return one.has_value(); }))
      throw UserError(
          fmt::format("--document {}:{}: the training data do not have it", file, offset));
    for (std::int64_t step = first_known_; step <= job_.run.steps; ++step)
      each_sample(step, [&](std::int64_t sample, const Window& window, std::int64_t begin) {
        const auto& document = found[window.part];
        const std::int64_t end = begin + job_.shape.context + 1;
        if (document && begin < document->end && document->begin < end)
          add_row(step, sample, window, *document, std::max(begin, document->begin), end);
      });
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const Json& rows() const { return rows_; }

 private:
  using Window = batches::Dataset::Window;

  /// The tokens of a sample from `begin` on that are of the document, of those before `end`.
  void add_row(std::int64_t step,
               std::int64_t sample,
               const Window& window,
               const batches::Document& document,
               std::int64_t begin,
               std::int64_t end) {
    const batches::Stream& stream = sources_.train[window.part];
    const std::int64_t tokens = std::min(end, document.end) - begin, from = begin - document.begin;
    text_ += fmt::format("{:>10}  {:>5}  {:>10}  {:>6}  {:>10}  {}:{}\n", step, window.epoch + 1,
                         sample, tokens, from, document.file, document.offset);
    rows_.push_back({{"step", step},
                     {"epoch", window.epoch + 1},
                     {"sample", sample},
                     {"tokens", tokens},
                     {"from", from},
                     {"source", stream.key},
                     {"file", document.file},
                     {stream.text ? "byte" : "token", document.offset}});
  }
  /// The sample after `count` that are used from `first` on.
  [[nodiscard]] std::int64_t after(std::int64_t first, std::int64_t count) const {
    return data_->train.skips().after(first, count);
  }
  /// Calls take(sample, window, first token) for the samples of a step.
  template <class Take>
  void each_sample(std::int64_t step, Take&& take) const {
    if (step < first_known_ || step > job_.run.steps)
      throw UserError(fmt::format("--step {}: the deck states the samples of steps {} to {}{}",
                                  step, first_known_, job_.run.steps,
                                  step > 0 && step < first_known_
                                      ? ", because the batch or the mixture has changed since then"
                                      : ""));
    std::int64_t next = step > done_
                            ? after(next_sample_, sizes_.until(step - 1) - sizes_.until(done_))
                            : after(0, sizes_.until(step - 1));
    for (std::int64_t i = 0; i < sizes_.at(step); ++i) {
      next = after(next, 1);
      const std::int64_t sample = next - 1;
      const Window window = data_->train.window(sample);
      take(sample, window, data_->train.parts()[window.part].start(window.number));
    }
  }
  /// Continues from the newest checkpoint, as a start would.
  void resume() {
    const auto newest = record::newest_checkpoint(job_.run.directory);
    if (!newest)
      return;
    const auto facts = record::read_manifest(newest->directory).facts;
    train::expect_allowed({newest->directory, facts}, job_,
                          fmt::format("{:016x}", batches::content_hash(*data_)));
    done_ = facts.step;
    next_sample_ = static_cast<std::int64_t>(facts.next_sample);
    data_->train.continue_from(train::fact_of(facts.more, record::data_position_fact),
                               next_sample_);
    const bool same_batches = after(0, sizes_.until(done_)) == next_sample_;
    while (first_known_ <= done_ &&
           (!same_batches || after(0, sizes_.until(first_known_ - 1)) < data_->train.base()))
      ++first_known_;
  }

  const session::Job& job_;
  const batches::BatchSizes sizes_;
  const std::unique_ptr<comm::World> world_ = comm::make_self_world();
  Log log_{false, "trireme data"};
  std::optional<comm::TemporaryDirectory> temporary_;
  batches::Sources sources_;
  std::optional<batches::Split> data_;
  std::vector<batches::Provenance> origins_;  // of each part
  std::int64_t done_ = 0, next_sample_ = 0;   // of the newest checkpoint
  std::int64_t first_known_ = 1;              // of the steps
  std::string text_ = "      step  epoch      sample  tokens        from  document\n";
  Json rows_ = Json::array();
};

ExitCode list_data(const DataOptions& options) {
  expect_new_file(options.json);
  if (options.steps.empty() == options.file.empty())
    throw UserError("give either --step or --document");
  deck::Circumstances circumstances = circumstances_of(options.ranks);
  circumstances.trains = false;
  const deck::Deck deck = deck_of(options.deck, circumstances);
  const session::Job job = deck::job_of(deck);
  try {
    RunData run(job);
    for (const batches::Range& steps : options.steps)
      for (std::int64_t step = steps.first; step <= steps.last; ++step) run.add_step(step);
    if (!options.file.empty())
      run.add_document(options.file, options.offset);
    give_result(run.text(), options.json, json_text(run.rows()));
  } catch (const UserError& mistake) {
    deck::settle(deck.places.placed(mistake.findings()), options.deck.overrides);
    throw;
  }
  return ExitCode::done;
}

batches::Range range_in(const char* option, const std::string& word) {
  const auto range = batches::range_of(word);
  if (!range || range->last < range->first)
    throw CLI::ValidationError(option,
                               fmt::format("'{}' is not a number or a range of them", word));
  return *range;
}

}  // namespace

Action declare_data(CLI::App& command) {
  const auto options = std::make_shared<DataOptions>();
  add_deck(command, options->deck)->required();
  const auto take_steps = [options](const std::vector<std::string>& words) {
    for (const std::string& word : words) options->steps.push_back(range_in("--step", word));
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--step", take_steps, "List the documents of steps, as 40 or 40-60, separated by commas.")
      ->delimiter(',')
      ->allow_extra_args(false);
  const auto take_document = [options](const std::string& word) {
    const std::size_t colon = word.rfind(':');
    if (colon == std::string::npos)
      throw CLI::ValidationError("--document", fmt::format("'{}' is not FILE:OFFSET", word));
    options->file = word.substr(0, colon);
    options->offset = range_in("--document", word.substr(colon + 1)).first;
  };
  command.add_option_function<std::string>(
      "--document", take_document,
      "List the samples that have tokens of the document at a byte of a text file, or at a token "
      "of a token file, as FILE:OFFSET.");
  add_ranks(command, options->ranks);
  add_json(command, options->json);
  return [options](Arguments) {
    const session::SignalScope signals("trireme data");
    return list_data(*options);
  };
}

}  // namespace trireme::cli
