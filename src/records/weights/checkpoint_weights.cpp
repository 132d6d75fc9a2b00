// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_weights.hpp"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

#include "model/layers.hpp"

#include "text/tokenizer.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint/piece_reader.hpp"

namespace trireme::weights {
namespace {

template <class T>
concept Fact = std::same_as<T, bool> || std::same_as<T, std::int64_t> || std::same_as<T, double> ||
    std::same_as<T, std::string> || NamedEnum<T>;

/// The name of the fact for a key of a section: rotary_scaling.factor is rotary_factor.
std::string prefix_of(std::string_view section) {
  return std::string(section.substr(0, section.find('_'))) + "_";
}

/// Sets keys from facts. A key that is optional in a deck may be absent.
class FactReader {
 public:
  FactReader(const record::NameValues& facts, const std::string& directory, std::string prefix = {})
      : facts_(facts), directory_(directory), prefix_(std::move(prefix)) {}

  template <Fact T>
  void operator()(const char* name, T& value, const Key<T>& key) const {
    if (key.change != Change::never)
      return;
    const std::string* text = find(name);
    if (text == nullptr)
      throw UserError({directory_}, fmt::format("the checkpoint does not contain the model's {}",
                                                prefix_ + name));
    read(name, *text, value);
    if constexpr (std::same_as<T, std::int64_t>)
      if (value < 1 || (key.max && value > *key.max))  // 0 in a deck means: size of the preset
        refuse(name, *text);
  }
  template <Fact T>
  void operator()(const char* name, Or<T>& value, const Key<Or<T>>& key) const {
    if (key.change != Change::never)
      return;
    if (const std::string* text = find(name))
      read(name, *text, value.value.emplace());
    if constexpr (std::same_as<T, std::int64_t>)
      if (value.given() &&
          ((key.min && *value.value < *key.min) || (key.max && *value.value > *key.max)))
        refuse(name, fmt::format("{}", *value.value));
  }
  void operator()(const char* /*name*/,
                  model::RecomputeKey& /*value*/,
                  const Key<model::RecomputeKey>& /*key*/) const {}
  template <class Config>
  void section(const char* name, Config& config) const {
    const FactReader inner(facts_, directory_, prefix_of(name));
    describe(inner, config);
  }
  [[noreturn]] void refuse(const char* name, const std::string& text) const {
    throw UserError({directory_},
                    fmt::format("the checkpoint contains the invalid value {} for the model's {}",
                                text, prefix_ + name));
  }

 private:
  [[nodiscard]] const std::string* find(const char* name) const {
    return record::find_fact(facts_, prefix_ + name);
  }
  template <Fact T>
  void read(const char* name, const std::string& text, T& value) const {
    if constexpr (std::same_as<T, bool>) {
      std::int64_t number = 0;
      read(name, text, number);
      value = number != 0;
    } else if constexpr (std::same_as<T, std::string>) {
      value = text;
    } else if constexpr (NamedEnum<T>) {
      const auto known = value_named<T>(text);
      if (!known)
        refuse(name, text);
      value = *known;
    } else if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
      refuse(name, text);
    }
  }

  const record::NameValues& facts_;
  const std::string& directory_;
  const std::string prefix_;
};

bool rotary_is_possible(const model::GptShape& shape) {
  const model::RotaryScaling& s = shape.rotary_scaling;
  return shape.positions == model::Positions::learned ||
         (shape.head_channels() % 2 == 0 && shape.rotary_theta > 0 && s.factor >= 1 &&
          s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor && s.beta_slow > 0 &&
          s.beta_fast > s.beta_slow && s.attention_factor > 0 && s.original_context >= 1);
}

bool is_possible(const model::GptShape& shape) {
  return (shape.head_width != 0 || shape.channels % shape.heads == 0) &&
         shape.heads % shape.key_value_heads() == 0 && shape.mlp_channels() >= 1 &&
         shape.mlp_channels() <= 1 << 20 && shape.norm_epsilon > 0 && shape.logit_softcap >= 0 &&
         shape.attention_window >= 0 && rotary_is_possible(shape);
}

constexpr const char *begin_fact = "begin_of_text", *ends_fact = "ends_of_text",
                     *padding_fact = "padding_token";

Roles roles_from(const record::NameValues& facts) {
  const auto ids_of = [&](const char* name) {
    std::istringstream words(record::fact_of(facts, name));
    return std::vector<std::int32_t>(std::istream_iterator<std::int32_t>(words), {});
  };
  Roles roles{.ends = ids_of(ends_fact)};
  for (const std::int32_t id : ids_of(begin_fact)) roles.begin = id;
  for (const std::int32_t id : ids_of(padding_fact)) roles.padding = id;
  return roles;
}

}  // namespace

record::NameValues model_facts(const model::GptShape& shape) {
  const auto usual = model::key_values({.layers = shape.layers,
                                        .heads = shape.heads,
                                        .channels = shape.channels,
                                        .activation = shape.activation});
  constexpr std::string_view sizes_and_others[] = {"layers",     "heads", "channels", "context",
                                                   "vocabulary", "bias",  "tied_head"};
  const bool yarn =
      shape.rotary_scaling.active() && shape.rotary_scaling.type == ops::RotaryScalingType::yarn;
  record::NameValues facts;
  for (std::size_t i = 0; auto& [key, value] : model::key_values(shape)) {
    // shape_from() must take the value where the fact is missing.
    const bool usual_value = key == "head_channels"                     ? shape.head_width == 0
                             : key == "rotary_scaling.attention_factor" ? !yarn
                             : key == "activation"                      ? value == "gelu"
                                                                        : value == usual[i].second;
    ++i;
    if (key == "output_init" ||
        (usual_value && std::ranges::find(sizes_and_others, key) == std::end(sizes_and_others)))
      continue;
    const auto dot = key.find('.');
    facts.emplace_back(
        dot == std::string::npos ? key : prefix_of(key.substr(0, dot)) + key.substr(dot + 1),
        value == "true"    ? "1"
        : value == "false" ? "0"
                           : value);
  }
  return facts;
}

model::GptShape shape_from(const record::NameValues& facts, const std::string& directory) {
  model::ModelConfig config;
  const FactReader reader(facts, directory);
  describe(reader, config);
  if (const auto& pattern = config.window_pattern.value;
      pattern &&
      model::pattern_of(model::long_layers(*pattern, config.layers), config.layers) != *pattern)
    reader.refuse("window_pattern", *pattern);
  const model::GptShape shape = resolve(config);
  if (!is_possible(shape))  // before it violates a contract of the model
    throw UserError({directory}, "the sizes in this checkpoint describe no possible model");
  return shape;
}

record::NameValues role_facts(const Roles& roles) {
  record::NameValues facts;
  if (roles.begin)
    facts.emplace_back(begin_fact, std::to_string(*roles.begin));
  if (!roles.ends.empty())
    facts.emplace_back(ends_fact, fmt::format("{}", fmt::join(roles.ends, " ")));
  if (roles.padding)
    facts.emplace_back(padding_fact, std::to_string(*roles.padding));
  return facts;
}

record::NameValues origin_facts(const record::NameValues& facts) {
  record::NameValues found;
  for (const auto& [name, value] : facts)
    if (name == record::origin_path_fact || name == record::origin_format_fact ||
        name == record::origin_hash_fact || name == begin_fact || name == ends_fact ||
        name == padding_fact)
      found.emplace_back(name, value);
  return found;
}

StoredModel open_checkpoint(const std::string& directory) {
  const record::Manifest manifest = record::read_manifest(directory);
  StoredModel model{.path = directory,
                    .format = "checkpoint",
                    .shape_file = directory + "/" + record::manifest_file};
  model.shape = shape_from(manifest.facts.model, directory);
  model.step = manifest.facts.step;
  model.roles = roles_from(manifest.facts.more);
  model.tokenizer = manifest.facts.tokenizer;
  model.tokenizer_place = model.shape_file;
  for (const auto& [key, value] : manifest.facts.deck) {
    if (key == "model.dropout")
      std::from_chars(value.data(), value.data() + value.size(), model.shape.dropout);
    if (key == "model.document_mask" && value == "true" && !model.tokenizer.empty())
      model.shape.document_token =
          text::tokenizer_from(model.tokenizer)->end_of_text().value_or(-1);
  }
  record::check_rank_files(directory, manifest);
  for (int rank = 0; rank < manifest.ranks(); ++rank)
    model.files.push_back(directory + "/" + record::rank_file(rank));
  const auto state = std::ranges::find(manifest.states, master_state, &record::SavedState::name);
  if (state == manifest.states.end() || state->dtype != DType::f32)
    throw UserError({directory}, "the checkpoint does not contain fp32 weights (state 'master')");
  const auto number_of_state = static_cast<std::size_t>(state - manifest.states.begin());
  const auto table = model::parameter_table(model.shape);
  Findings findings;
  for (std::size_t p = 0; p < std::max(table.size(), manifest.parameters.size()); ++p) {
    if (p >= table.size() || p >= manifest.parameters.size() ||
        manifest.parameters[p].name != table[p].name ||
        manifest.parameters[p].shape != table[p].shape) {
      findings.add({directory}, p < table.size() ? table[p].name : manifest.parameters[p].name,
                   "the parameters in the checkpoint do not match its model");
      continue;
    }
    StoredTensor tensor{.parameter = table[p].name, .name = table[p].name, .shape = table[p].shape};
    tensor.content_hash = manifest.content_hash(number_of_state, p);
    for (const record::Piece& piece : manifest.pieces_of(number_of_state, p))
      tensor.extents.push_back({piece.rank, piece.offset, piece.begin, piece.count});
    if (tensor.extents.empty())
      findings.add({directory}, tensor.name,
                   "the checkpoint does not contain the weights of this parameter");
    model.tensors.push_back(std::move(tensor));
  }
  findings.settle();
  return model;
}

std::string checkpoint_in(const std::string& run_directory, std::int64_t step) {
  const auto newest = record::newest_checkpoint(run_directory);
  if (!newest)
    throw UserError(
        {run_directory},
        "no checkpoint in this directory. Train with checkpoint.every_steps > 0 first.");
  if (step < 0 || newest->step == step)
    return newest->directory;
  std::string there;
  for (const auto& found : record::list_checkpoints(run_directory)) {
    if (found.step == step)
      return found.directory;
    there += fmt::format("{}{}", there.empty() ? "" : ", ", found.step);
  }
  throw UserError({run_directory},
                  fmt::format("no checkpoint of step {}. Available steps: {}", step, there));
}

}  // namespace trireme::weights
