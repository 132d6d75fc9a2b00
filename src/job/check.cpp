// SPDX-License-Identifier: Apache-2.0
#include "job/check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

#include "model/gpt.hpp"

#include "job/survey.hpp"

namespace trireme::job {

trireme::model::GptShape shape_of(const JobConfig& config) {
  trireme::model::GptShape shape = trireme::model::resolve(config.model);
  const bool tokens = !config.data.train.tokens.empty();
  if (shape.vocabulary == 0 && !tokens && config.data.tokenizer == trireme::data::Tokenizer::bytes)
    shape.vocabulary = 256;
  return shape;
}

namespace {

using trireme::optim::Schedule;

/// What one key has to do with a disagreement.
struct Side {
  const char* path;
  std::string text;
};

class Checker {
 public:
  Checker(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings)
      : config_(deck.config),
        places_(deck.places),
        circumstances_(circumstances),
        findings_(findings),
        shape_(shape_of(deck.config)) {}

  void run() {
    texts_are_there();
    batch_splits();
    run_is_countable();
    sizes_are_complete();
    heads_divide_channels();
    one_source();
    vocabulary_holds_tokens();
    schedule_fits();
    validation_exists();
    machine_is_there();
    boundaries_are_parameters();
    tree_can_grow();
    walltime_can_checkpoint();
    checkpoints_are_one_runs();
    sample_can_begin();
    graphs_keep_their_memory();
    numbers_fit_the_arithmetic();
    changes_can_be_allowed();
  }

 private:
  [[nodiscard]] bool readable(std::initializer_list<const char*> paths) const {
    return std::ranges::all_of(paths, [&](const char* path) { return places_.readable(path); });
  }

  void say(const char* path, std::string text) {
    findings_.push_back({places_.of(path), path, std::move(text)});
  }

  /// One line at each side that was given; at the first one's section when none was.
  void disagree(std::vector<Side> sides) {
    bool said = false;
    for (Side& side : sides)
      if (places_.given(side.path)) {
        say(side.path, std::move(side.text));
        said = true;
      }
    if (!said)
      say(sides.front().path, std::move(sides.front().text));
  }

  void texts_are_there() {
    if (readable({"run.directory"}) && config_.run.directory.empty())
      say("run.directory", "empty; name a directory");
    if (readable({"run.name"}) && config_.run.name.empty())
      say("run.name", "empty; name the run");
  }

  void batch_splits() {
    if (!circumstances_.trains || !readable({"batch.sequences", "batch.micro_sequences"}))
      return;
    const std::int64_t sequences = config_.batch.sequences;
    const std::int64_t micro = config_.batch.micro_sequences;
    const std::int64_t ranks = circumstances_.ranks;
    const std::int64_t unit = micro * ranks;
    if (sequences % unit == 0)
      return;
    if (sequences < ranks) {
      say("batch.sequences", fmt::format("{} sequences cannot be split over {} ranks; start at "
                                         "most {} ranks, or give {} sequences",
                                         sequences, ranks, sequences, unit));
      return;
    }
    const std::int64_t below = sequences / unit * unit;
    std::string works =
        below > 0 ? fmt::format("{} or {}", below, below + unit) : fmt::format("{}", unit);
    std::string micro_works;
    if (sequences % ranks == 0) {
      std::int64_t divisor = std::min(micro, sequences / ranks);
      while (sequences / ranks % divisor != 0) --divisor;
      micro_works = fmt::format("; nearest below that works: {}", divisor);
    }
    disagree({{"batch.sequences",
               fmt::format("{} is not a multiple of {} = {} micro_sequences x {} {}; nearest that "
                           "works: {}",
                           sequences, unit, micro, ranks, ranks == 1 ? "rank" : "ranks", works)},
              {"batch.micro_sequences",
               fmt::format("{} x {} {} does not divide the {} sequences of a step{}", micro, ranks,
                           ranks == 1 ? "rank" : "ranks", sequences, micro_works)}});
  }

  void run_is_countable() {
    if (!readable({"run.steps", "batch.sequences", "model.context"}))
      return;
    const double tokens = static_cast<double>(config_.run.steps) *
                          static_cast<double>(config_.batch.sequences) *
                          static_cast<double>(shape_.context);
    if (tokens >= 0x1p62)
      say("run.steps",
          fmt::format("{} steps of {} sequences of {} tokens are {:.3g} tokens, more "
                      "than can be counted",
                      config_.run.steps, config_.batch.sequences, shape_.context, tokens));
  }

  void sizes_are_complete() {
    if (!readable({"model.preset"}))
      return;
    const auto needs = [&](const char* path, std::int64_t size) {
      if (size == 0 && readable({path}))
        say(path, "neither given nor filled in by model.preset");
    };
    needs("model.layers", shape_.layers);
    needs("model.heads", shape_.heads);
    needs("model.channels", shape_.channels);
    needs("model.context", shape_.context);
    if (readable({"data.train.tokens", "data.tokenizer"}))
      needs("model.vocabulary", shape_.vocabulary);
  }

  void heads_divide_channels() {
    if (!readable({"model.preset", "model.heads", "model.channels"}) || shape_.heads == 0 ||
        shape_.channels % shape_.heads == 0)
      return;
    const std::int64_t below = shape_.channels / shape_.heads * shape_.heads;
    const std::string works = below > 0 ? fmt::format("{} or {}", below, below + shape_.heads)
                                        : fmt::format("{}", shape_.heads);
    disagree({{"model.channels",
               fmt::format("{} is not a multiple of heads = {}; nearest that works: {}",
                           shape_.channels, shape_.heads, works)},
              {"model.heads",
               fmt::format("{} does not divide channels = {}", shape_.heads, shape_.channels)}});
  }

  void one_source() {
    if (!readable({"data", "data.train.text", "data.train.tokens", "data.train.synthetic"}))
      return;
    const trireme::data::SourceConfig& source = config_.data.train;
    std::vector<const char*> given;
    if (!source.text.empty())
      given.push_back("data.train.text");
    if (!source.tokens.empty())
      given.push_back("data.train.tokens");
    if (source.synthetic != 0)
      given.push_back("data.train.synthetic");
    if (given.empty())
      say("data.train", "no data; give one of text, tokens and synthetic");
    if (given.size() > 1)
      for (const char* path : given)
        say(path, "one of several sources of data; give only one of text, tokens and synthetic");
  }

  void vocabulary_holds_tokens() {
    if (!readable({"model.preset", "model.vocabulary", "data.tokenizer", "data.train.text"}) ||
        config_.data.train.text.empty() ||
        config_.data.tokenizer != trireme::data::Tokenizer::bytes || shape_.vocabulary == 0 ||
        shape_.vocabulary >= 256)
      return;
    const char* problem = "is too small: text in bytes has 256 different tokens";
    disagree({{"model.vocabulary", fmt::format("{} {}", shape_.vocabulary, problem)},
              {"data.tokenizer", fmt::format("bytes needs model.vocabulary >= 256, which is {}",
                                             shape_.vocabulary)}});
  }

  void schedule_fits() {
    const trireme::optim::ScheduleConfig& schedule = config_.optimizer.schedule;
    if (!readable({"run.steps", "optimizer.schedule.warmup_steps", "optimizer.schedule.steps"}))
      return;
    const bool own = schedule.steps.given();
    const std::int64_t steps = schedule.steps.value_or(config_.run.steps);
    if (schedule.warmup_steps > steps) {
      disagree({{"optimizer.schedule.warmup_steps",
                 fmt::format("{} warm-up steps in a {} of {} steps", schedule.warmup_steps,
                             own ? "schedule" : "run", steps)},
                {own ? "optimizer.schedule.steps" : "run.steps",
                 fmt::format("{} steps end before the warm-up of {} steps", steps,
                             schedule.warmup_steps)}});
      return;
    }
    if (!readable({"optimizer.schedule.kind", "optimizer.schedule.decay_fraction"}) ||
        schedule.kind != Schedule::wsd)
      return;
    const double decay = schedule.decay_fraction * static_cast<double>(steps);
    if (schedule.decay_fraction == 0)
      disagree({{"optimizer.schedule.decay_fraction",
                 "0 leaves the wsd schedule without its decay; kind: constant says so"}});
    else if (static_cast<double>(schedule.warmup_steps) + decay > static_cast<double>(steps))
      disagree({{"optimizer.schedule.decay_fraction",
                 fmt::format("the last {} of {} steps overlap the {} warm-up steps",
                             schedule.decay_fraction, steps, schedule.warmup_steps)},
                {"optimizer.schedule.warmup_steps",
                 fmt::format("{} warm-up steps overlap the decay, the last {} of {} steps",
                             schedule.warmup_steps, schedule.decay_fraction, steps)}});
  }

  void validation_exists() {
    if (!readable({"evaluate.every_steps", "data.validation_fraction"}) ||
        config_.evaluate.every_steps == 0 || config_.data.validation_fraction > 0)
      return;
    disagree(
        {{"evaluate.every_steps", "nothing to evaluate: data.validation_fraction is 0"},
         {"data.validation_fraction", fmt::format("0 leaves nothing for evaluate.every_steps = {}",
                                                  config_.evaluate.every_steps)}});
  }

  void machine_is_there() {
    if (readable({"run.device"}) && config_.run.device == trireme::train::DeviceChoice::cuda &&
        !circumstances_.cuda)
      say("run.device", "cuda: this build has no CUDA");
    if (readable({"parallel.transport"}) &&
        config_.parallel.transport == trireme::comm::Transport::nccl) {
      if (!circumstances_.cuda)
        say("parallel.transport", "nccl: this build has no CUDA");
      else if (readable({"run.device"}) && config_.run.device == trireme::train::DeviceChoice::cpu)
        disagree({{"parallel.transport", "nccl carries memory of GPUs, and run.device is cpu"},
                  {"run.device", "cpu, but parallel.transport is nccl"}});
    }
    if (readable({"parallel.transport"}) &&
        config_.parallel.transport == trireme::comm::Transport::self && circumstances_.ranks > 1)
      say("parallel.transport",
          fmt::format("self is for one rank, and there are {}", circumstances_.ranks));
  }

  void boundaries_are_parameters() {
    const auto& boundaries = config_.parallel.bucket_boundaries;
    if (boundaries.empty() || !readable({"parallel.bucket_boundaries"}))
      return;
    if (readable({"parallel.bucket_elements"}) && config_.parallel.bucket_elements.given())
      disagree({{"parallel.bucket_boundaries",
                 "close buckets by hand, and parallel.bucket_elements would close them by size"},
                {"parallel.bucket_elements",
                 "closes buckets by size, and parallel.bucket_boundaries close them by hand"}});
    if (std::min({shape_.layers, shape_.channels, shape_.context, shape_.vocabulary}) <= 0)
      return;  // said elsewhere
    std::vector<std::string> names;
    for (const auto& parameter : trireme::model::parameter_table(shape_))
      names.push_back(parameter.name);
    for (std::size_t i = 0; i < boundaries.size(); ++i) {
      const auto near = nearest(boundaries[i], names);
      if (std::ranges::count(names, boundaries[i]) == 0)
        say("parallel.bucket_boundaries",
            fmt::format("the model has no parameter '{}'{}", boundaries[i],
                        near ? fmt::format("; did you mean '{}'?", *near)
                             : "; `trireme plan` shows their names"));
      if (std::count(boundaries.begin(), boundaries.begin() + static_cast<std::ptrdiff_t>(i),
                     boundaries[i]) != 0)
        say("parallel.bucket_boundaries", fmt::format("'{}' twice", boundaries[i]));
    }
  }

  void tree_can_grow() {
    if (!readable({"parallel.reduction", "parallel.logical_shards"}))
      return;
    const bool tree = config_.parallel.reduction == trireme::comm::Reduction::tree;
    const bool counted = config_.parallel.logical_shards.given();
    if (tree != counted) {
      disagree({{"parallel.reduction",
                 fmt::format("{} {}", word(config_.parallel.reduction),
                             tree ? "adds up parallel.logical_shards, which is not given"
                                  : "has no use for parallel.logical_shards; tree does")},
                {"parallel.logical_shards",
                 fmt::format("given, but only parallel.reduction = tree adds up logical shards, "
                             "and it is {}",
                             word(config_.parallel.reduction))}});
      return;
    }
    if (!tree)
      return;
    leaves_are_equal(*config_.parallel.logical_shards.value);
    if (readable({"parallel.reduce_every"}) &&
        config_.parallel.reduce_every != trireme::reduce::ReduceEvery::step)
      disagree({{"parallel.reduce_every",
                 "micro_step adds sums over the ranks, and parallel.reduction = tree adds those of "
                 "leaves before; step works"},
                {"parallel.reduction", "tree adds up a step's leaves, not each micro-step alone"}});
    if (readable({"parallel.gradient_dtype"}) &&
        config_.parallel.gradient_dtype != trireme::reduce::GradientDType::fp32)
      disagree({{"parallel.gradient_dtype",
                 fmt::format("{} would round partial sums where ranks begin and end, and "
                             "parallel.reduction = tree promises the same bits on any of them; "
                             "fp32 works",
                             word(config_.parallel.gradient_dtype))},
                {"parallel.reduction", fmt::format("the partial sums of a tree travel in fp32, "
                                                   "not in parallel.gradient_dtype = {}",
                                                   word(config_.parallel.gradient_dtype))}});
  }

  /// Every rank has a whole subtree, and every leaf the same number of whole micro-steps.
  void leaves_are_equal(std::int64_t shards) {
    const auto is_power = [](std::int64_t n) {
      return std::has_single_bit(static_cast<std::uint64_t>(n));
    };
    const std::int64_t ranks = circumstances_.ranks;
    if (!is_power(ranks))
      say("parallel.reduction",
          fmt::format("tree is for 1, 2, 4, 8, … ranks, and there are {}; ordered is for any",
                      ranks));
    if (!is_power(shards)) {
      const auto below =
          static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(shards)));
      say("parallel.logical_shards",
          fmt::format("{} is not a power of two; nearest that are: {} and {}", shards, below,
                      2 * below));
      return;
    }
    if (is_power(ranks) && shards < ranks)
      say("parallel.logical_shards",
          fmt::format("{} logical shards cannot be dealt to {} ranks; give {} or more", shards,
                      ranks, ranks));
    if (!readable({"batch.sequences", "batch.micro_sequences"}))
      return;
    const std::int64_t sequences = config_.batch.sequences;
    const std::int64_t micro = config_.batch.micro_sequences;
    const std::int64_t unit = micro * shards;
    if (sequences % unit == 0)
      return;
    const std::int64_t below = sequences / unit * unit;
    disagree({{"parallel.logical_shards",
               fmt::format("{} x {} micro_sequences does not divide the {} sequences of a step",
                           shards, micro, sequences)},
              {"batch.sequences",
               fmt::format("{} is not a multiple of {} = {} micro_sequences x {} logical shards; "
                           "nearest that works: {}",
                           sequences, unit, micro, shards,
                           below > 0 ? fmt::format("{} or {}", below, below + unit)
                                     : fmt::format("{}", unit))}});
  }

  void walltime_can_checkpoint() {
    if (!readable({"run.walltime", "checkpoint.every_steps", "checkpoint.every_minutes"}) ||
        !config_.run.walltime.given() || config_.checkpoint.regular())
      return;
    disagree(
        {{"run.walltime",
          "the run would stop with a checkpoint, but checkpoint.every_steps is 0 (none)"},
         {"checkpoint.every_steps", "0 (none) leaves run.walltime no checkpoint to stop with"}});
  }

  void graphs_keep_their_memory() {
    if (!readable({"run.graphs", "memory.pool"}) || !config_.run.graphs.value_or(false) ||
        config_.memory.pool)
      return;
    disagree({{"run.graphs",
               "true: what is captured keeps its addresses, and memory.pool = false allocates "
               "scratch anew each time"},
              {"memory.pool", "false: run.graphs = true needs scratch that stays where it is"}});
  }

  void checkpoints_are_one_runs() {
    if (!readable({"run.when_finished", "checkpoint.directory"}) ||
        config_.run.when_finished != trireme::train::WhenFinished::renew ||
        config_.checkpoint.directory.empty())
      return;
    disagree({{"checkpoint.directory",
               "one directory, but run.when_finished = new begins a new run beside a finished one"},
              {"run.when_finished",
               "new: the next run would find the finished one's checkpoints in "
               "checkpoint.directory"}});
  }

  void sample_can_begin() {
    if (!readable({"sample.every_steps"}) || config_.sample.every_steps == 0)
      return;
    if (readable({"sample.prompt"}) && config_.sample.prompt.empty())
      disagree({{"sample.every_steps", "a sample needs sample.prompt to continue"},
                {"sample.prompt", "empty; a sample needs something to continue"}});
    if (readable({"data.train.tokens", "model.vocabulary"}) && !config_.data.train.tokens.empty() &&
        shape_.vocabulary > 256)
      disagree({{"sample.every_steps",
                 "prompt and sample are bytes of text, but data.train.tokens gives other tokens"},
                {"data.train.tokens",
                 fmt::format("tokens of an alphabet of {} cannot be printed, as sample.every_steps "
                             "asks for",
                             shape_.vocabulary)}});
  }

  /// The optimizer computes in fp32, and a number that is 0 or 1 there means another thing.
  void numbers_fit_the_arithmetic() {
    constexpr double smallest = std::numeric_limits<float>::min();
    const std::pair<const char*, double> numbers[] = {
        {"optimizer.learning_rate", config_.optimizer.learning_rate},
        {"optimizer.epsilon", config_.optimizer.epsilon},
        {"optimizer.weight_decay", config_.optimizer.weight_decay},
        {"optimizer.clip_norm", config_.optimizer.clip_norm}};
    for (const auto& [path, value] : numbers)
      if (readable({path}) && value != 0 && std::abs(value) < smallest)
        say(path,
            fmt::format("{} is too small for fp32, in which it is used; the smallest is {:.3g}",
                        value, smallest));
    for (const auto& [path, value] : {std::pair{"optimizer.beta1", config_.optimizer.beta1},
                                      std::pair{"optimizer.beta2", config_.optimizer.beta2}})
      if (readable({path}) && value < 1 && static_cast<float>(value) >= 1)
        say(path,
            fmt::format("{} is 1 in fp32, in which it is used: its moment would never change; "
                        "the largest is 0.9999999",
                        value));
  }

  void changes_can_be_allowed() {
    if (!readable({"run.allow_changes"}) || config_.run.allow_changes.empty())
      return;
    const std::vector<Entry> entries = survey(config_);
    for (const std::string& word : config_.run.allow_changes) {
      const auto inside = [&](const Entry& entry) {
        return entry.path == word || entry.path.starts_with(word + ".");
      };
      std::vector<std::string> names;
      for (const Entry& entry : entries) names.push_back(entry.path);
      if (std::ranges::none_of(entries, inside)) {
        const auto near = nearest(word, names);
        say("run.allow_changes",
            fmt::format("'{}' is no key or section of a deck{}", word,
                        near ? fmt::format("; did you mean '{}'?", *near) : ""));
      } else if (std::ranges::none_of(entries, [&](const Entry& entry) {
                   return inside(entry) && entry.change != Change::never;
                 })) {
        say("run.allow_changes", fmt::format("a run cannot change '{}'", word));
      }
    }
  }

  const JobConfig& config_;
  const Places& places_;
  const Circumstances& circumstances_;
  std::vector<Diagnostic>& findings_;
  trireme::model::GptShape shape_;
};

}  // namespace

void check(const Deck& deck,
           const Circumstances& circumstances,
           std::vector<Diagnostic>& findings) {
  Checker(deck, circumstances, findings).run();
}

}  // namespace trireme::job
