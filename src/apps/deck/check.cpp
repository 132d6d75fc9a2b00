// SPDX-License-Identifier: Apache-2.0
#include "deck/check.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"

#include "model/layers.hpp"

#include "tokens/token_files.hpp"

#include "optim/groups.hpp"

#include "deck/survey.hpp"

namespace trireme::deck {

bool Rules::readable(std::initializer_list<const char*> paths) const {
  return std::ranges::all_of(paths, [&](const char* path) { return places_.readable(path); });
}

void Rules::say(const std::string& path, std::string text) const {
  findings_.push_back({places_.of(path), path, std::move(text)});
}

void Rules::conflict(const std::vector<std::string>& keys, const std::string& why) const {
  const auto given = [&](const std::string& key) { return places_.given(key); };
  if (!std::ranges::all_of(keys, [&](const std::string& key) { return places_.readable(key); }))
    return;
  const bool none = std::ranges::none_of(keys, given);
  for (const std::string& key : keys) {
    if (none ? key != keys.front() : !given(key))
      continue;
    std::vector<std::string> others;
    for (const std::string& other : keys)
      if (const std::string value = value_of(other); other != key)
        others.push_back(other + (value.empty() ? "" : " = " + value));
    const std::string own = value_of(key);
    say(key, fmt::format("{}not possible with {}: {}", own.empty() ? "" : own + " is ",
                         fmt::join(others, " and "), why));
  }
}

std::string Rules::value_of(const std::string& path) const {
  for (const BatchSize& size : readable_sizes())
    if (size.path == path)
      return std::to_string(size.sequences);
  const auto resolved = resolved_model(shape_);
  if (const auto known = resolved.find(path); known != resolved.end() && !places_.given(path))
    return known->second;
  for (const Entry& entry : survey(config_))
    if (entry.path == path && !entry.text.starts_with('['))
      return entry.text;
  return {};
}

bool is_altered(const KeyPlaces& places, const JobConfig& config, const std::string& path) {
  const auto text_in = [&path](const JobConfig& sections) {
    const std::vector<Entry> entries = survey(sections);
    const auto found = std::ranges::find(entries, path, &Entry::path);
    return found == entries.end() ? std::string() : found->text;
  };
  return places.given(path) && text_in(config) != text_in(JobConfig{});
}

std::string multiples_near(std::int64_t size, std::int64_t unit) {
  const std::int64_t below = size / unit * unit;
  if (below > std::numeric_limits<std::int64_t>::max() - unit)
    return fmt::format("{}", below);
  return below > 0 ? fmt::format("{} or {}", below, below + unit) : fmt::format("{}", unit);
}

bool has_token_files(const batches::DataConfig& data) {
  return !data.train.tokens.empty() ||
         std::ranges::any_of(data.train.mixture,
                             [](const batches::MixturePart& part) { return !part.tokens.empty(); });
}

bool has_unknown_tokens(const batches::DataConfig& data, std::int64_t vocabulary) {
  return data.in_bytes() && (has_token_files(data) || data.train.synthetic != 0) &&
         vocabulary > 256;
}

model::GptShape shape_of(const JobConfig& config, const text::Tokenizer* tokenizer) {
  model::GptShape shape = model::resolve(config.model);
  const bool follows = !config.data.in_bytes() || !has_token_files(config.data);
  if (shape.vocabulary == 0 && follows && tokenizer != nullptr)
    shape.vocabulary = tokenizer->vocabulary();
  if (config.model.document_mask && tokenizer != nullptr)
    shape.document_token = tokenizer->end_of_text().value_or(-1);
  return shape;
}

namespace {

using optim::Schedule;

struct AllRules : Rules {
  void check() const {
    texts_are_there();
    check_batch(*this);
    sizes_are_complete();
    check_model(*this);
    one_source();
    files_agree();
    check_own_files(*this);
    documents_begin();
    vocabulary_holds_tokens();
    schedule_fits();
    momentum_warms_up();
    validation_exists();
    check_record(*this);
    machine_is_there();
    boundaries_are_parameters();
    check_parallel(*this);
    walltime_can_checkpoint();
    checkpoints_are_one_runs();
    new_runs_have_names();
    homes_are_named();
    sample_can_begin();
    text_is_encoded_as_tokens();
    graphs_keep_their_memory();
    numbers_fit_the_arithmetic();
    changes_can_be_allowed();
    groups_have_parameters();
  }

  void texts_are_there() const {
    if (readable({"run.directory"}) && config_.run.directory.empty())
      say("run.directory", "must not be empty. Name a directory.");
    if (readable({"run.name"}) && config_.run.name.empty())
      say("run.name", "must not be empty. Name the run.");
  }

  void sizes_are_complete() const {
    if (!readable({"model.preset"}))
      return;
    const auto needs = [&](const char* path, std::int64_t size) {
      if (size == 0 && readable({path}))
        say(path, "must be given, because model.preset does not define it");
    };
    needs("model.layers", shape_.layers);
    needs("model.heads", shape_.heads);
    needs("model.channels", shape_.channels);
    needs("model.context", shape_.context);
    if (tokenizer_ != nullptr && readable({"data.train"}))
      needs("model.vocabulary", shape_.vocabulary);
  }

  [[nodiscard]] bool all_sizes_are_known() const {
    return std::min({shape_.layers, shape_.heads, shape_.channels, shape_.context,
                     shape_.vocabulary}) > 0;
  }

  void one_source() const {
    if (!readable({"data", "data.train", "data.train.text", "data.train.tokens",
                   "data.train.synthetic", "data.train.mixture"}))
      return;
    const batches::SourceConfig& source = config_.data.train;
    const std::pair<const char*, bool> sources[] = {
        {"data.train.text", !source.text.empty()},
        {"data.train.tokens", !source.tokens.empty()},
        {"data.train.synthetic", source.synthetic != 0},
        {"data.train.mixture", !source.mixture.empty()}};
    const auto given = std::ranges::count_if(sources, [](const auto& one) { return one.second; });
    if (given == 0)
      say("data.train", "no data. Give one of text, tokens, synthetic and mixture.");
    for (const auto& [path, is_given] : sources)
      if (given > 1 && is_given)
        say(path,
            "there are several sources of data. Give only one of text, tokens, synthetic and "
            "mixture.");
  }

  /// Keys for text need text, and keys for tokens need tokens.
  void files_agree() const {
    files_agree_in("data.train", config_.data.train);
    files_agree_in("data.validation", config_.data.validation);
    for (std::size_t i = 0; i < config_.data.train.mixture.size(); ++i) {
      const std::string part = fmt::format("data.train.mixture[{}]", i);
      const batches::MixturePart& files = config_.data.train.mixture[i];
      files_agree_in(part, files);
      if (!files.given() && places_.readable(part) && places_.readable(part + ".text") &&
          places_.readable(part + ".tokens"))
        say(part, "no data. Give either text or tokens.");
      if (!files.text.empty() && !files.tokens.empty())
        say(part, "both text and tokens are given. Give only one of them, or a part for each.");
    }
    if (!config_.data.validation.text.empty() && !config_.data.validation.tokens.empty())
      say("data.validation", "both text and tokens are given. Give only one of them.");
    if (config_.data.train.mixture.size() == 1)
      say("data.train.mixture",
          "a mixture needs at least two parts. Write a single one as data.train.");
  }

  void files_agree_in(const std::string& section, const batches::FilesConfig& files) const {
    const auto expect_with = [&](const char* key, bool needs, const char* other) {
      const std::string path = section + "." + key, source = section + "." + other;
      if (places_.given(path) && needs && places_.readable(path) && places_.readable(source))
        say(path, fmt::format("has no effect without {}, which is not given", source));
    };
    expect_with("field", !files.field.empty() && files.text.empty(), "text");
    expect_with("separator", files.separator != "auto" && files.text.empty(), "text");
    expect_with("bad_lines", files.bad_lines != tokens::BadLines::stop && files.field.empty(),
                "field");
    expect_with("format", files.format != tokens::TokenFormat::automatic && files.tokens.empty(),
                "tokens");
  }

  /// Rows of documents, and a document mask, need a token that begins a document.
  void documents_begin() const {
    const batches::SourceConfig& train = config_.data.train;
    const auto needs = [&](const char* key) {
      if (train.synthetic != 0)
        conflict({key, "data.train.synthetic"}, "synthetic data have no documents");
      else if (tokenizer_ != nullptr && !tokenizer_->end_of_text())
        conflict({key, "data.tokenizer"},
                 "this tokenizer has no end-of-text token, which begins a document");
    };
    const bool text =
        !train.text.empty() ||
        std::ranges::any_of(train.mixture, [](const auto& part) { return !part.text.empty(); });
    if (config_.data.rows == batches::Rows::documents && (text || train.synthetic != 0))
      needs("data.rows");
    if (config_.model.document_mask)
      needs("model.document_mask");
  }

  void vocabulary_holds_tokens() const {
    if (!readable({"model.preset", "model.vocabulary", "data.tokenizer", "data.train"}) ||
        tokenizer_ == nullptr || shape_.vocabulary == 0 ||
        shape_.vocabulary >= tokenizer_->vocabulary() || config_.data.train.synthetic != 0 ||
        (config_.data.in_bytes() && has_token_files(config_.data)))
      return;
    conflict({"model.vocabulary", "data.tokenizer"},
             fmt::format("the tokenizer has {} tokens", tokenizer_->vocabulary()));
  }

  void schedule_fits() const {
    const optim::ScheduleConfig& schedule = config_.optimizer.schedule;
    if (!readable({"run.steps", "optimizer.schedule.warmup_steps", "optimizer.schedule.steps"}))
      return;
    const bool own = schedule.steps.given();
    const std::int64_t steps = schedule.steps.value_or(config_.run.steps);
    if (schedule.warmup_steps > steps)
      return conflict(
          {"optimizer.schedule.warmup_steps", own ? "optimizer.schedule.steps" : "run.steps"},
          "there are fewer steps than warm-up steps");
    if (!readable({"optimizer.schedule.kind", "optimizer.schedule.decay_fraction"}) ||
        schedule.kind != Schedule::wsd)
      return;
    const double decay = schedule.decay_fraction * static_cast<double>(steps);
    if (decay * (1 + 1e-12) < 1)
      say("optimizer.schedule.decay_fraction",
          fmt::format("leaves no step of {} to the decay of the wsd schedule. Use kind: constant "
                      "for no decay.",
                      steps));
    else if (static_cast<double>(schedule.warmup_steps) + decay > static_cast<double>(steps))
      conflict({"optimizer.schedule.decay_fraction", "optimizer.schedule.warmup_steps"},
               fmt::format("warm-up and decay overlap in {} steps", steps));
  }

  void momentum_warms_up() const {
    const optim::MuonConfig& muon = config_.optimizer.muon;
    if (altered("optimizer.muon.momentum_start") && muon.momentum_warmup_steps == 0 &&
        readable({"optimizer.muon.momentum_start", "optimizer.muon.momentum_warmup_steps"}))
      say("optimizer.muon.momentum_start",
          "without effect: optimizer.muon.momentum_warmup_steps is 0");
  }

  void validation_exists() const {
    if (!readable(
            {"evaluate.every_steps", "data.validation_fraction", "data.validation", "data.train"}))
      return;
    const bool own = config_.data.validation.given(), mixed = !config_.data.train.mixture.empty();
    if (altered("data.validation_fraction") && config_.data.validation_fraction > 0 &&
        (own || mixed))
      say("data.validation_fraction",
          own ? "without effect: data.validation names the validation data"
              : "without effect with a mixture. Give data.validation.");
    if (config_.data.validation.by == batches::ValidationBy::documents &&
        (own || config_.data.train.text.empty()))
      say("data.validation.by",
          own ? "without effect: data.validation names the validation data"
              : "documents are only searched for in data.train.text. Set tail, or give "
                "data.validation.");
    if (config_.evaluate.every_steps == 0 || own)
      return;
    if (mixed)
      conflict({"evaluate.every_steps", "data.train.mixture"},
               "there are no validation data. Give data.validation.");
    else if (config_.data.validation_fraction == 0)
      conflict({"evaluate.every_steps", "data.validation_fraction"},
               "there are no validation data");
  }

  void machine_is_there() const {
    if (readable({"run.device"}) && config_.run.device == session::DeviceChoice::cuda &&
        !circumstances_.cuda)
      say("run.device", "cuda is not available: this build has no CUDA");
    if (readable({"parallel.transport"}) && config_.parallel.transport == comm::Transport::nccl) {
      if (!circumstances_.cuda)
        say("parallel.transport", "nccl is not available: this build has no CUDA");
      else if (config_.run.device == session::DeviceChoice::cpu)
        conflict({"parallel.transport", "run.device"}, "NCCL needs GPUs");
    }
    if (readable({"parallel.transport"}) && config_.parallel.transport == comm::Transport::self &&
        circumstances_.ranks > 1)
      say("parallel.transport",
          fmt::format("self is only for one rank, but there are {}", circumstances_.ranks));
  }

  void boundaries_are_parameters() const {
    const auto& boundaries = config_.parallel.bucket_boundaries;
    if (boundaries.empty() || !readable({"parallel.bucket_boundaries"}))
      return;
    if (config_.parallel.bucket_elements.given())
      conflict({"parallel.bucket_boundaries", "parallel.bucket_elements"},
               "both define the buckets");
    if (!all_sizes_are_known())
      return;
    std::vector<std::string> names;
    for (const auto& parameter : model::parameter_table(shape_)) names.push_back(parameter.name);
    for (std::size_t i = 0; i < boundaries.size(); ++i) {
      const auto near = nearest(boundaries[i], names);
      if (std::ranges::count(names, boundaries[i]) == 0)
        say("parallel.bucket_boundaries",
            fmt::format("the model has no parameter '{}'{}", boundaries[i],
                        near ? fmt::format("; did you mean '{}'?", *near)
                             : ". `trireme plan` lists their names."));
      if (std::count(boundaries.begin(), boundaries.begin() + static_cast<std::ptrdiff_t>(i),
                     boundaries[i]) != 0)
        say("parallel.bucket_boundaries", fmt::format("'{}' is given twice", boundaries[i]));
    }
  }

  void groups_have_parameters() const {
    const auto& rules = config_.optimizer.groups;
    if (rules.empty() || !all_sizes_are_known())
      return;
    const auto table = model::parameter_table(shape_);
    const auto groups = optim::resolve_groups(config_.optimizer, table);
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const std::string path = fmt::format("optimizer.groups[{}].match", i);
      const auto has_rule = [&](const auto& one) { return one.rule == static_cast<int>(i); };
      const std::string item = fmt::format("optimizer.groups[{}]", i);
      if (!readable({item.c_str(), path.c_str()}) || std::ranges::any_of(groups.all, has_rule))
        continue;
      const bool taken = std::ranges::any_of(table, [&](const auto& parameter) {
        return optim::matches(rules[i].match, parameter.name);
      });
      say(path.c_str(),
          taken ? fmt::format("earlier rules already match all parameters that '{}' matches",
                              rules[i].match)
                : fmt::format(
                      "no parameter of the model matches '{}'. `trireme plan` lists their names.",
                      rules[i].match));
    }
  }

  void walltime_can_checkpoint() const {
    if (!readable({"checkpoint.every_minutes"}) || !config_.run.walltime.given() ||
        config_.checkpoint.regular())
      return;
    conflict({"run.walltime", "checkpoint.every_steps"},
             "the run must write a checkpoint before it stops");
  }

  void graphs_keep_their_memory() const {
    if (!config_.gpu.graphs.value_or(false) || config_.memory.pool)
      return;
    conflict({"gpu.graphs", "memory.pool"}, "graphs need fixed addresses of scratch memory");
  }

  void checkpoints_are_one_runs() const {
    if (config_.run.when_finished != session::WhenFinished::renew ||
        config_.checkpoint.directory.empty())
      return;
    conflict({"checkpoint.directory", "run.when_finished"},
             "the new run would find the finished run's checkpoints");
  }

  /// A new run gets the finished run's directory name with a number appended.
  void new_runs_have_names() const {
    const auto name = (std::filesystem::path(config_.run.directory) / "").parent_path().filename();
    if (config_.run.when_finished == session::WhenFinished::renew &&
        (name.empty() || name == "." || name == ".."))
      conflict({"run.directory", "run.when_finished"}, "there is no name to which to add -2");
  }

  /// Only a shell knows ~. Where nothing has to exist yet, a directory of this name would be made.
  void homes_are_named() const {
    for (const auto& [path, value] :
         {std::pair{"run.directory", config_.run.directory},
          std::pair{"data.cache", config_.data.cache.value_or("")},
          std::pair{"checkpoint.directory", config_.checkpoint.directory},
          std::pair{"record.metrics_file", config_.record.metrics_file}})
      if (readable({path}) && value.starts_with("~/"))
        say(path, fmt::format("a deck does not know ~. Write ${{HOME}}{}", value.substr(1)));
  }

  void sample_can_begin() const {
    if (config_.sample.every_steps == 0)
      return;
    if (config_.sample.prompt.empty())
      conflict({"sample.every_steps", "sample.prompt"}, "there is no text to continue");
    if (!readable({"data.train", "data.tokenizer", "model.vocabulary"}))
      return;
    if (has_unknown_tokens(config_.data, shape_.vocabulary))
      conflict({"sample.every_steps",
                config_.data.train.synthetic != 0 ? "data.train.synthetic" : "data.train.tokens"},
               "samples are text, but data.tokenizer does not name the tokenizer of the tokens");
    else if (tokenizer_ != nullptr && 0 < shape_.vocabulary &&
             shape_.vocabulary < tokenizer_->vocabulary())
      conflict(
          {"sample.every_steps", "model.vocabulary"},
          fmt::format("samples need the {} tokens of the tokenizer", tokenizer_->vocabulary()));
  }

  /// Text that is read in addition to token files is encoded by data.tokenizer.
  void text_is_encoded_as_tokens() const {
    if (!readable({"data", "model.vocabulary", "evaluate.sets"}) ||
        !has_unknown_tokens(config_.data, shape_.vocabulary))
      return;
    const auto refuse = [&](const std::string& key) {
      say(key,
          "text is encoded by data.tokenizer, which does not name the tokenizer of the tokens "
          "in data.train");
    };
    if (!config_.data.validation.text.empty())
      refuse("data.validation.text");
    for (std::size_t i = 0; i < config_.data.train.mixture.size(); ++i)
      if (!config_.data.train.mixture[i].text.empty())
        refuse(fmt::format("data.train.mixture[{}].text", i));
    for (std::size_t i = 0; i < config_.evaluate.sets.size(); ++i)
      if (config_.evaluate.sets[i].is_text())
        refuse(fmt::format("evaluate.sets[{}]", i));
  }

  /// The optimizer computes in fp32. A number that rounds to 0 or 1 there has another meaning.
  void numbers_fit_the_arithmetic() const {
    constexpr double smallest = std::numeric_limits<float>::min();
    std::vector<std::pair<std::string, double>> numbers = {
        {"optimizer.learning_rate", config_.optimizer.learning_rate},
        {"optimizer.epsilon", config_.optimizer.epsilon},
        {"optimizer.muon.update_rms", config_.optimizer.muon.update_rms},
        {"model.z_loss", config_.model.z_loss},
        {"optimizer.outer.rate", config_.optimizer.outer.rate},
        {"optimizer.weight_decay", config_.optimizer.weight_decay},
        {"optimizer.clip_norm", config_.optimizer.clip_norm}};
    for (std::size_t i = 0; i < config_.optimizer.groups.size(); ++i) {
      const optim::GroupRule& rule = config_.optimizer.groups[i];
      const std::string item = fmt::format("optimizer.groups[{}].", i);
      numbers.emplace_back(item + "learning_rate", rule.learning_rate.value_or(0));
      numbers.emplace_back(item + "weight_decay", rule.weight_decay.value_or(0));
    }
    for (const auto& [path, value] : numbers)
      if (readable({path.c_str()}) && value != 0 && std::abs(value) < smallest)
        say(path,
            fmt::format("{} is too small for fp32; the smallest value is {:.3g}", value, smallest));
    constexpr double least_cap = 1e-3;
    const double cap = config_.model.logit_softcap.value_or(0);
    if (readable({"model.logit_softcap"}) && cap > 0 && cap < least_cap)
      say("model.logit_softcap",
          fmt::format("{} is below {}, where logits would hardly differ. Use 0 for no cap.", cap,
                      least_cap));
    constexpr const char* still = "its moment would never change";
    for (const auto& [path, value, effect] :
         {std::tuple{"optimizer.beta1", config_.optimizer.beta1, still},
          std::tuple{"optimizer.beta2", config_.optimizer.beta2, still},
          std::tuple{"optimizer.muon.momentum", config_.optimizer.muon.momentum, still},
          std::tuple{"optimizer.muon.momentum_start", config_.optimizer.muon.momentum_start, still},
          std::tuple{"optimizer.outer.momentum", config_.optimizer.outer.momentum,
                     "its sum would grow without limit"},
          std::tuple{"model.dropout", config_.model.dropout, "nothing would be kept"}})
      if (readable({path}) && value < 1 && static_cast<float>(value) >= 1)
        say(path,
            fmt::format("{} is 1 in fp32, so {}; the largest value is 0.9999999", value, effect));
  }

  void changes_can_be_allowed() const {
    if (!readable({"run.allow_changes"}) || config_.run.allow_changes.empty())
      return;
    const std::vector<Entry> entries = survey(config_);
    for (const std::string& word : config_.run.allow_changes) {
      const auto inside = [&](const Entry& entry) {
        return entry.path == word || entry.path.starts_with(word + ".");
      };
      if (std::ranges::none_of(entries, inside)) {
        std::vector<std::string> names;
        for (const Entry& entry : entries) names.push_back(entry.path);
        const auto near = nearest(word, names);
        say("run.allow_changes",
            fmt::format("'{}' is not a key or section of a deck{}", word,
                        near ? fmt::format("; did you mean '{}'?", *near) : ""));
      } else if (std::ranges::none_of(entries, [&](const Entry& entry) {
                   return inside(entry) && entry.change != Change::never;
                 })) {
        say("run.allow_changes", fmt::format("a run cannot change '{}'", word));
      }
    }
  }
};

}  // namespace

void check(const Deck& deck,
           const Circumstances& circumstances,
           std::vector<Diagnostic>& findings) {
  AllRules{Rules(deck, circumstances, findings)}.check();
}

}  // namespace trireme::deck
