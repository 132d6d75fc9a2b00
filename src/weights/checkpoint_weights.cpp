// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_weights.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "base/error.hpp"

#include "model/layers.hpp"
#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/fact_names.hpp"
#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint/manifest_share.hpp"

#include "text/tokenizer.hpp"
#include "weights/safetensors.hpp"

namespace trireme::weights {
namespace {

std::int64_t number(const record::NameValues& facts,
                    const char* name,
                    const std::string& directory) {
  for (const auto& [known, value] : facts) {
    std::int64_t read = 0;
    if (known == name &&
        std::from_chars(value.data(), value.data() + value.size(), read).ec == std::errc())
      return read;
  }
  throw UserError({directory, 0, 0},
                  fmt::format("the checkpoint does not contain the model's {}", name));
}

bool rotary_is_possible(const model::GptShape& shape) {
  const model::RotaryScaling& s = shape.rotary_scaling;
  return shape.positions == model::Positions::learned ||
         (shape.head_channels() % 2 == 0 && shape.rotary_theta > 0 && s.factor >= 1 &&
          s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor &&
          s.original_context >= 1);
}

/// Facts that a checkpoint may have; what it does not state is left unchanged.
struct OptionalFacts {
  const record::NameValues& facts;
  const std::string& directory;

  [[nodiscard]] const std::string* find(const char* name) const {
    const auto found = std::ranges::find(facts, name, &record::NameValues::value_type::first);
    return found == facts.end() ? nullptr : &found->second;
  }
  [[noreturn]] void refuse(const char* name, const std::string& value) const {
    throw UserError({directory},
                    fmt::format("the checkpoint has {} for the model's {}", value, name));
  }
  template <class T>
  void number(const char* name, T& to) const {
    const std::string* value = find(name);
    if (value != nullptr &&
        std::from_chars(value->data(), value->data() + value->size(), to).ec != std::errc())
      refuse(name, *value);
  }
  void flag(const char* name, bool& to) const {
    std::int64_t value = to ? 1 : 0;
    number(name, value);
    to = value != 0;
  }
  template <NamedEnum E>
  void choice(const char* name, E& to) const {
    const std::string* value = find(name);
    if (value == nullptr)
      return;
    for (const auto& [known, text] : EnumNames<E>::table)
      if (*value == text) {
        to = known;
        return;
      }
    refuse(name, *value);
  }
};

/// A checkpoint of a shape that no model has would be taken apart by our own contracts.
void expect_model(const model::GptShape& shape, const std::string& directory) {
  const auto within = [](std::int64_t size, std::int64_t most) {
    return size >= 1 && size <= most;
  };
  if (!within(shape.layers, model::most_layers) || !within(shape.heads, 1024) ||
      !within(shape.channels, 65536) || !within(shape.context, 1 << 20) ||
      !within(shape.vocabulary, 1 << 20) ||
      (shape.head_width == 0 && shape.channels % shape.heads != 0) ||
      !within(shape.head_channels(), 65536) || !within(shape.key_value_heads(), shape.heads) ||
      shape.heads % shape.key_value_heads() != 0 || !within(shape.mlp_channels(), 1 << 20) ||
      !(shape.norm_epsilon > 0) || !(shape.logit_softcap >= 0) || shape.attention_window < 0 ||
      !rotary_is_possible(shape))
    throw UserError({directory}, "the sizes in this checkpoint describe no possible model");
}

/// Serialized. Checkpoints from before tokenizers were kept mean bytes, as resumed runs do.
std::string tokenizer_of_facts(const record::CheckpointFacts& facts) {
  const bool unknown = std::ranges::any_of(facts.more, [](const auto& fact) {
    return fact.first == record::tokenizer_fact && fact.second == record::unknown_tokenizer;
  });
  return facts.tokenizer.empty() && !unknown ? text::byte_tokenizer()->serialized()
                                             : facts.tokenizer;
}

}  // namespace

// A fact beyond those that every checkpoint has is one in which the model differs from GPT-2: so
// checkpoints of GPT-2 stay as they always were.
record::NameValues model_facts(const model::GptShape& shape) {
  record::NameValues facts{
      {"layers", std::to_string(shape.layers)},         {"heads", std::to_string(shape.heads)},
      {"channels", std::to_string(shape.channels)},     {"context", std::to_string(shape.context)},
      {"vocabulary", std::to_string(shape.vocabulary)}, {"bias", shape.bias ? "1" : "0"},
      {"tied_head", shape.tied_head ? "1" : "0"}};
  const model::GptShape gpt2;
  const auto add = [&](const char* name, const auto& value, const auto& usual) {
    if (value == usual)
      return;
    if constexpr (NamedEnum<std::remove_cvref_t<decltype(value)>>)
      facts.emplace_back(name, word(value));
    else
      facts.emplace_back(name, fmt::format("{}", value));  // of a double: the same bits come back
  };
  add("key_value_heads", shape.grouped_heads, gpt2.grouped_heads);
  add("head_channels", shape.head_width, gpt2.head_width);
  add("mlp_channels", shape.hidden, gpt2.hidden);
  add("norm", shape.norm, gpt2.norm);
  add("norm_gain", shape.norm_gain ? 1 : 0, gpt2.norm_gain ? 1 : 0);
  add("embedding_norm", shape.embedding_norm ? 1 : 0, gpt2.embedding_norm ? 1 : 0);
  add("norm_epsilon", shape.norm_epsilon, gpt2.norm_epsilon);
  add("qk_norm", shape.qk_norm, gpt2.qk_norm);
  add("activation", shape.activation, gpt2.activation);
  add("positions", shape.positions, gpt2.positions);
  add("rotary_theta", shape.rotary_theta, gpt2.rotary_theta);
  const model::RotaryScaling &scaling = shape.rotary_scaling, none;
  add("rotary_factor", scaling.factor, none.factor);
  add("rotary_low_freq_factor", scaling.low_freq_factor, none.low_freq_factor);
  add("rotary_high_freq_factor", scaling.high_freq_factor, none.high_freq_factor);
  add("rotary_original_context", scaling.original_context, none.original_context);
  add("attention_window", shape.attention_window, gpt2.attention_window);
  if (shape.long_layers.any())
    facts.emplace_back("window_pattern", model::pattern_of(shape.long_layers, shape.layers));
  add("logit_softcap", shape.logit_softcap, gpt2.logit_softcap);
  return facts;
}

model::GptShape shape_from(const record::NameValues& facts, const std::string& directory) {
  const auto read = [&](const char* name) { return number(facts, name, directory); };
  model::GptShape shape;
  shape.layers = read("layers");
  shape.heads = read("heads");
  shape.channels = read("channels");
  shape.context = read("context");
  shape.vocabulary = read("vocabulary");
  shape.bias = read("bias") != 0;
  shape.tied_head = read("tied_head") != 0;
  const OptionalFacts more{facts, directory};
  more.number("key_value_heads", shape.grouped_heads);
  more.number("head_channels", shape.head_width);
  more.number("mlp_channels", shape.hidden);
  more.choice("norm", shape.norm);
  more.flag("norm_gain", shape.norm_gain);
  more.flag("embedding_norm", shape.embedding_norm);
  more.number("norm_epsilon", shape.norm_epsilon);
  more.choice("qk_norm", shape.qk_norm);
  more.choice("activation", shape.activation);
  more.choice("positions", shape.positions);
  more.number("rotary_theta", shape.rotary_theta);
  more.number("rotary_factor", shape.rotary_scaling.factor);
  more.number("rotary_low_freq_factor", shape.rotary_scaling.low_freq_factor);
  more.number("rotary_high_freq_factor", shape.rotary_scaling.high_freq_factor);
  more.number("rotary_original_context", shape.rotary_scaling.original_context);
  more.number("attention_window", shape.attention_window);
  if (const std::string* pattern = more.find("window_pattern")) {
    shape.long_layers = model::long_layers(*pattern, shape.layers);
    if (*pattern != model::pattern_of(shape.long_layers, shape.layers))
      more.refuse("window_pattern", *pattern);
  }
  more.number("logit_softcap", shape.logit_softcap);
  return shape;
}

record::NameValues origin_facts(const record::NameValues& facts) {
  record::NameValues found;
  for (const auto& [name, value] : facts)
    if (name == record::origin_path_fact || name == record::origin_format_fact ||
        name == record::origin_hash_fact)
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
  model.tokenizer = tokenizer_of_facts(manifest.facts);
  model.tokenizer_place = model.shape_file;
  expect_model(model.shape, directory);
  for (const auto& [key, value] : manifest.facts.deck) {
    if (key == "model.dropout")
      std::from_chars(value.data(), value.data() + value.size(), model.shape.dropout);
    if (key == "model.document_mask" && value == "true" && !model.tokenizer.empty())
      model.shape.document_token =
          text::tokenizer_from(model.tokenizer)->end_of_text().value_or(-1);
  }
  std::vector<std::uint32_t> ranks(manifest.file_bytes.size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  record::check_rank_files(directory, manifest, ranks);
  for (int rank = 0; rank < manifest.ranks(); ++rank)
    model.files.push_back(directory + "/" + record::rank_file(rank));
  const auto state = std::ranges::find(manifest.states, master_state, &record::SavedState::name);
  if (state == manifest.states.end() || state->dtype != DType::f32)
    throw UserError({directory}, "the checkpoint holds no weights in fp32 ('master')");
  const auto number_of_state = static_cast<std::size_t>(state - manifest.states.begin());
  const auto table = model::parameter_table(model.shape);
  std::vector<Diagnostic> findings;
  for (std::size_t p = 0; p < std::max(table.size(), manifest.parameters.size()); ++p) {
    if (p >= table.size() || p >= manifest.parameters.size() ||
        manifest.parameters[p].name != table[p].name ||
        manifest.parameters[p].shape != table[p].shape) {
      findings.push_back({{directory},
                          p < table.size() ? table[p].name : manifest.parameters[p].name,
                          "the checkpoint's parameters are not those of its model"});
      continue;
    }
    StoredTensor tensor{.parameter = table[p].name, .name = table[p].name, .shape = table[p].shape};
    tensor.content_hash = manifest.content_hash(number_of_state, p);
    for (const record::Piece& piece : manifest.pieces_of(number_of_state, p))
      tensor.extents.push_back({piece.rank, piece.offset, piece.begin, piece.count});
    if (tensor.extents.empty())
      findings.push_back({{directory}, tensor.name, "the checkpoint does not hold its weights"});
    model.tensors.push_back(std::move(tensor));
  }
  throw_findings(std::move(findings));
  return model;
}

std::string checkpoint_in(const std::string& run_directory, std::int64_t step) {
  const auto newest = record::newest_checkpoint(run_directory);
  if (!newest)
    throw UserError(
        {run_directory, 0, 0},
        "no checkpoint below this directory; train with checkpoint.every_steps > 0 first");
  if (step < 0 || newest->step == step)
    return newest->directory;
  std::string there;
  for (const auto& found : record::list_checkpoints(run_directory)) {
    if (found.step == step)
      return found.directory;
    there += fmt::format("{}{}", there.empty() ? "" : ", ", found.step);
  }
  throw UserError({run_directory},
                  fmt::format("no checkpoint of step {}; there are those of {}", step, there));
}

}  // namespace trireme::weights
