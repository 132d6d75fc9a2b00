// SPDX-License-Identifier: Apache-2.0
// The keys of config.json of each family. Rotary positions have two spellings: `rope_theta` and
// `rope_scaling`, or from transformers 5 on `rope_parameters` with both. Both are read; the first
// is written, because every version reads it.
//
// Sources: transformers, configuration_*.py of the families and modeling_rope_utils.py.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"

#include "text/json_file.hpp"

#include "weights/config_keys.hpp"
#include "weights/family.hpp"
#include "weights/huggingface.hpp"

namespace trireme::weights {
namespace {

using model::Activation;
using model::GptShape;
using model::RotaryScaling;
using ops::RotaryScalingType;
using text::Json;

/// Marks a model without biases in a family whose files always contain biases (then zeros).
constexpr const char* no_bias_key = "trireme_bias";

/// Families similar to a supported one, and why they are not supported.
constexpr std::pair<const char*, const char*> near_families[] = {
    {"olmo2", ": it normalizes the outputs of attention and MLP, and trireme their inputs"},
    {"smollm3", ": some of its layers have no rotary positions, which trireme does not have"}};

const Family& family_named(const std::string& path, const Json& root) {
  const Json& type = text::member(root, "model_type");
  std::string known, why;
  for (const Family& family : families()) {
    if (type == family.model_type)
      return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  for (const auto& [name, reason] : near_families)
    if (type == name)
      why = reason;
  text::refuse_key(
      path, "model_type",
      fmt::format("{}: this architecture is not supported{}. Supported: {}",
                  type.is_null() ? "missing" : text::shortened(type.dump()), why, known));
}

void read_scaling(KeyReader& keys, const std::string& rope, GptShape& shape) {
  constexpr std::pair<const char*, RotaryScalingType> types[] = {
      {"llama3", RotaryScalingType::llama3},
      {"yarn", RotaryScalingType::yarn},
      {"linear", RotaryScalingType::linear},
      {"default", RotaryScalingType::llama3}};  // with a factor of 1
  const auto key = [&](const char* name) { return rope + "." + name; };
  const std::string type_key = key(keys.value(key("rope_type")).is_null() ? "type" : "rope_type");
  Json type = keys.value(type_key);
  keys.positive(key("rope_theta"), shape.rotary_theta, shape.rotary_theta);
  keys.fixed(key("partial_rotary_factor"), "1.0", "trireme rotates all channels of a head");
  RotaryScaling s;
  if (type.is_null())
    type = "default";
  else
    keys.word<RotaryScalingType>(type_key, s.type, types, "trireme does not scale positions so");
  if (std::ranges::find(types, type, [](const auto& known) { return Json(known.first); }) ==
      std::end(types))
    return;
  std::int64_t original = shape.context;
  if (type != "default" && type != "linear") {
    keys.count(key("original_max_position_embeddings"), original, 1 << 24, original);
    keys.count("original_max_position_embeddings", s.original_context, 1 << 24, original);
  }
  if (type != "default")
    keys.positive(key("factor"), s.factor,
                  type == "yarn"
                      ? static_cast<double>(shape.context) / static_cast<double>(s.original_context)
                      : 0);
  const auto in_order = [&](const char* low_key, double low, const char* high_key, double high) {
    if (high <= low)
      keys.say(key(high_key), fmt::format("{} is not above {} = {}", high, low_key, low));
  };
  if (type == "llama3") {
    keys.positive(key("low_freq_factor"), s.low_freq_factor, 0);
    keys.positive(key("high_freq_factor"), s.high_freq_factor, 0);
    in_order("low_freq_factor", s.low_freq_factor, "high_freq_factor", s.high_freq_factor);
  }
  if (type == "yarn") {
    keys.positive(key("beta_slow"), s.beta_slow, s.beta_slow);
    keys.positive(key("beta_fast"), s.beta_fast, s.beta_fast);
    in_order("beta_slow", s.beta_slow, "beta_fast", s.beta_fast);
    keys.fixed(key("truncate"), "true", "trireme rounds the ends of the ramp to whole channels");
    double all = 0, some = 0;
    keys.positive(key("mscale"), some, 1);
    keys.positive(key("mscale_all_dim"), all, 1);
    const bool given =
        !keys.value(key("mscale")).is_null() && !keys.value(key("mscale_all_dim")).is_null();
    const double log_factor = std::log(s.factor);
    keys.positive(key("attention_factor"), s.attention_factor,
                  given ? (1 + 0.1 * some * log_factor) / (1 + 0.1 * all * log_factor)
                        : model::yarn_attention_factor(s.factor));
    if (!s.active() && s.attention_factor != 1)
      keys.say(key("attention_factor"),
               fmt::format("{}; without a factor above 1, it must be 1", s.attention_factor));
  }
  keys.refuse_others_in(rope, "rope_type " + type.dump());
  if (s.factor < 1)
    keys.say(key("factor"), fmt::format("{}; it must be at least 1", s.factor));
  shape.rotary_scaling = s.active() ? s : RotaryScaling{};
}

void rotary_keys(KeyReader& keys, GptShape& shape) {
  keys.positive("rope_theta", shape.rotary_theta, 10000);
  keys.fixed("partial_rotary_factor", "1.0", "trireme rotates all channels of a head");
  GptShape other = shape;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json& given = keys.value(key);
    if (given.is_null())
      continue;
    if (!given.is_object()) {
      keys.say(key, "expected an object {\"rope_type\": ...}");
      continue;
    }
    other = shape;
    read_scaling(keys, key, shape);
  }
  if (!keys.value("rope_scaling").is_null() && !keys.value("rope_parameters").is_null() &&
      (other.rotary_scaling != shape.rotary_scaling || other.rotary_theta != shape.rotary_theta))
    keys.say("rope_parameters", "differs from rope_scaling");
}

void rotary_keys(KeyWriter& keys, const GptShape& shape) {
  const RotaryScaling& s = shape.rotary_scaling;
  keys.value("rope_theta") = shape.rotary_theta;
  OrderedJson& scaling = keys.value("rope_scaling");
  if (!s.active())
    return;
  scaling = {{"rope_type", word(s.type)}, {"factor", s.factor}};
  if (s.type == RotaryScalingType::llama3)
    scaling.update(
        {{"low_freq_factor", s.low_freq_factor}, {"high_freq_factor", s.high_freq_factor}});
  if (s.type == RotaryScalingType::yarn)
    scaling.update({{"beta_slow", s.beta_slow},
                    {"beta_fast", s.beta_fast},
                    {"attention_factor", s.attention_factor}});
  if (s.type != RotaryScalingType::linear)
    scaling["original_max_position_embeddings"] = s.original_context;
}

constexpr const char *whole = "full_attention", *sliding = "sliding_attention";

/// The window size of a family for which it is a number or null.
std::int64_t window_of(KeyReader& keys) {
  std::int64_t window = 0;
  if (!keys.has("sliding_window") || !keys.value("sliding_window").is_null())
    keys.count("sliding_window", window, 1 << 20, 4096);
  return window;
}

/// Without layer_types, the layers from max_window_layers on have the window.
void window_keys(KeyReader& keys, Windows windows, GptShape& shape) {
  if (windows == Windows::all_layers)
    return shape.set_attention_window(window_of(keys), {});
  model::LongLayers without;
  const Json& types = keys.value("layer_types");
  bool slides = false;
  keys.flag("use_sliding_window", slides, false);
  static_cast<void>(keys.value("sliding_window"));  // ignored without the flag
  const std::int64_t window = slides ? window_of(keys) : 0;
  const Json& first = keys.value("max_window_layers");
  std::int64_t full = 0;
  if (first.is_null() || first != 0)
    keys.count("max_window_layers", full, 1 << 20, 28);
  for (std::int64_t l = 0; types.is_null() && l < std::min(shape.layers, full); ++l)
    without.set(static_cast<std::size_t>(l));
  if (!types.is_null() && (!types.is_array() || std::ssize(types) != shape.layers))
    keys.say("layer_types", fmt::format("expected a list of {} layers", shape.layers));
  for (std::size_t l = 0; types.is_array() && l < types.size() && l < without.size(); ++l) {
    if (types[l] != whole && (types[l] != sliding || window == 0))
      return keys.say("layer_types",
                      fmt::format("{}: a layer must be {}", text::shortened(types[l].dump()),
                                  window == 0 ? "\"full_attention\", because use_sliding_window "
                                                "and sliding_window define no window"
                                              : "\"full_attention\" or \"sliding_attention\""));
    without[l] = types[l] == whole;
  }
  shape.set_attention_window(window, without);
}

void window_keys(KeyWriter& keys, Windows windows, const GptShape& shape) {
  const bool slides = shape.attention_window > 0;
  OrderedJson& window = keys.value("sliding_window");
  if (slides)
    window = shape.attention_window;
  if (windows == Windows::all_layers)
    return;
  keys.value("use_sliding_window") = slides;
  keys.value("max_window_layers") =
      slides ? shape.long_layers.count() : static_cast<std::size_t>(shape.layers);
  OrderedJson types = OrderedJson::array();
  for (std::int64_t l = 0; l < shape.layers; ++l)
    types.push_back(shape.window_of(l) > 0 ? sliding : whole);
  keys.value("layer_types") = std::move(types);
}

void expect_whole_heads(KeyReader& keys, const char* heads_key, const GptShape& shape) {
  if (shape.heads > 0 && shape.head_width == 0 && shape.channels % shape.heads != 0)
    keys.say(heads_key,
             fmt::format("{} heads do not divide {} channels", shape.heads, shape.channels));
}

template <class Keys>
void gpt2_keys(Keys& keys, GptShape& shape) {
  constexpr std::pair<const char*, Activation> activations[] = {
      {"gelu_new", Activation::gelu},
      {"gelu_pytorch_tanh", Activation::gelu},
      {"relu2", Activation::squared_relu}};
  keys.count("n_layer", shape.layers, model::most_layers);
  keys.count("n_head", shape.heads, 1024);
  keys.count("n_embd", shape.channels, 65536);
  keys.count("n_positions", shape.context, 1 << 20);
  keys.count("vocab_size", shape.vocabulary, 1 << 20);
  keys.template word<Activation>("activation_function", shape.activation, activations,
                                 "trireme has GELU in its tanh form and the square of ReLU");
  keys.positive("layer_norm_epsilon", shape.norm_epsilon, shape.norm_epsilon);
  keys.flag("tie_word_embeddings", shape.tied_head, true);
  keys.fixed("scale_attn_weights", "true", "trireme scales attention by 1/sqrt(head width)");
  keys.fixed("scale_attn_by_inverse_layer_idx", "false",
             "trireme does not scale attention by the layer's index");
  if constexpr (Keys::reads) {
    expect_whole_heads(keys, "n_head", shape);
    std::int64_t width = shape.default_mlp_channels();
    keys.count("n_inner", width, 1 << 20, width);
    shape.set_mlp_channels(width);
  } else {
    keys.value("n_ctx") = shape.context;
    OrderedJson& inner = keys.value("n_inner");
    if (shape.hidden != 0)
      inner = shape.hidden;
  }
}

/// Sizes that have a default, and the rules between sizes.
void read_heads(KeyReader& keys, const Family& family, GptShape& shape) {
  std::int64_t width = family.kind == model::Family::qwen3 ? 128 : 0;
  if (width > 0 || !keys.value("head_dim").is_null())
    keys.count("head_dim", width, 65536, width);
  shape.set_head_channels(width);
  expect_whole_heads(keys, "num_attention_heads", shape);
  // A missing key and null have different meanings in transformers.
  const bool missing = !keys.has("num_key_value_heads");
  std::int64_t groups = shape.heads;
  keys.count("num_key_value_heads", groups, 1024,
             missing && family.windows == Windows::all_layers    ? 8
             : missing && family.windows == Windows::some_layers ? 32
                                                                 : groups);
  if (shape.heads == 0)
    return;
  if (shape.heads % groups != 0)
    keys.say("num_key_value_heads",
             fmt::format("{} does not divide {} heads", groups, shape.heads));
  else
    shape.set_key_value_heads(groups);
  if ((shape.head_width != 0 || shape.channels % shape.heads == 0) &&
      shape.head_channels() % 2 != 0)
    keys.say(shape.head_width != 0 ? "head_dim" : "num_attention_heads",
             fmt::format("rotary positions need an even number of channels per head, not {}",
                         shape.head_channels()));
}

template <class Keys>
void cap_keys(Keys& keys, GptShape& shape) {
  constexpr const char* key = "final_logit_softcapping";
  if constexpr (!Keys::reads) {
    OrderedJson& cap = keys.value(key);
    if (shape.logit_softcap > 0)
      cap = shape.logit_softcap;
  } else if (keys.has(key) && keys.value(key).is_null()) {
    shape.logit_softcap = 0;
  } else {
    keys.positive(key, shape.logit_softcap, shape.logit_softcap);
  }
}

/// Llama and the families that follow it.
template <class Keys>
void llama_keys(Keys& keys, const Family& family, GptShape& shape) {
  const bool nanochat = family.kind == model::Family::nanochat;
  keys.count("num_hidden_layers", shape.layers, model::most_layers);
  keys.count("num_attention_heads", shape.heads, 1024);
  keys.count("hidden_size", shape.channels, 65536);
  keys.count("max_position_embeddings", shape.context, 1 << 20);
  keys.count("vocab_size", shape.vocabulary, 1 << 20);
  keys.positive("rms_norm_eps", shape.norm_epsilon, 1e-6);
  keys.flag("tie_word_embeddings", shape.tied_head, false);
  keys.fixed(
      "hidden_act", nanochat ? R"("relu2")" : R"("silu" or "swish")",
      nanochat ? "trireme uses the square of ReLU in the MLP" : "trireme gates the MLP with SiLU",
      true);
  std::int64_t width = shape.mlp_channels();
  keys.count("intermediate_size", width, 1 << 20);
  if constexpr (Keys::reads) {
    shape.set_mlp_channels(width);
    read_heads(keys, family, shape);
  } else {
    keys.value("num_key_value_heads") = shape.key_value_heads();
    keys.value("head_dim") = shape.head_channels();
  }
  rotary_keys(keys, shape);
  if (family.windows != Windows::none)
    window_keys(keys, family.windows, shape);
  if (family.may_have_biases) {
    bool mlp_bias = shape.bias;
    keys.flag("attention_bias", shape.bias, false);
    keys.flag("mlp_bias", mlp_bias, false);
    if constexpr (Keys::reads)
      if (mlp_bias != shape.bias)
        keys.say("mlp_bias", fmt::format("{}, but attention_bias is {}: in trireme all linear "
                                         "layers have biases or none",
                                         mlp_bias, shape.bias));
  } else if (family.kind == model::Family::qwen3 || nanochat) {
    keys.fixed("attention_bias", "false", "trireme has biases in attention and MLP or in neither");
  }
  if (nanochat)
    cap_keys(keys, shape);
}

template <class Keys>
void family_keys(Keys& keys, const Family& family, GptShape& shape) {
  if (family.kind == model::Family::gpt2)
    gpt2_keys(keys, shape);
  else
    llama_keys(keys, family, shape);
  if (family.always_biased && (Keys::reads || !shape.bias))
    keys.flag(no_bias_key, shape.bias, true);
}

/// Token ids of a key: an id or a list of ids; null and -1 give none, other values are reported.
std::vector<std::int32_t> ids_of(KeyReader& keys, const char* key, std::int64_t vocabulary) {
  const Json& given = keys.value(key);
  std::vector<std::int32_t> ids;
  for (const Json& id : given.is_array() ? given : Json::array({given}))
    if (id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary))
      ids.push_back(id.get<std::int32_t>());
    else if (!id.is_null() && id != -1)
      keys.say(key, fmt::format("{}; it must be a token from 0 to {}, a list of tokens, or null",
                                keys.shown(key), vocabulary - 1));
  return ids;
}

/// Changes only the roles that have a value in this file.
void read_roles(KeyReader& keys, std::int64_t vocabulary, Roles& roles) {
  if (const auto ids = ids_of(keys, "bos_token_id", vocabulary); !ids.empty())
    roles.begin = ids.front();
  if (const auto ids = ids_of(keys, "pad_token_id", vocabulary); !ids.empty())
    roles.padding = ids.front();
  if (auto ids = ids_of(keys, "eos_token_id", vocabulary); !ids.empty())
    roles.ends = std::move(ids);
}

void write_roles(OrderedJson& root, const Roles& roles) {
  root["bos_token_id"] = json_or_null(roles.begin);
  root["eos_token_id"] = nullptr;
  if (!roles.ends.empty())
    root["eos_token_id"] =
        roles.ends.size() > 1 ? OrderedJson(roles.ends) : OrderedJson(roles.ends.front());
  root["pad_token_id"] = json_or_null(roles.padding);
}

Json parse_object(const text::FileText& file) {
  Json root = text::parse_json(file);
  if (!root.is_object())
    throw UserError({file.path}, "expected a JSON object {...}");
  return root;
}

}  // namespace

ConfigContent read_config(const text::FileText& file) {
  const Json root = parse_object(file);
  const Family& family = family_named(file.path, root);
  ConfigContent content{.shape = model::parts_of(family.kind)};
  content.shape.output_init = {};  // not part of a trained model
  KeyReader keys(file.path, root);
  static_cast<void>(keys.value("model_type"));
  family_keys(keys, family, content.shape);
  read_roles(keys, content.shape.vocabulary, content.roles);
  content.notes = keys.finish(family.architecture);
  if (!parts_beyond(family, content.shape).empty())
    static_cast<void>(family_of(content.shape, file.path));
  return content;
}

void read_generation_config(const text::FileText& file, ConfigContent& content) {
  const Json root = parse_object(file);
  KeyReader keys(file.path, root);
  read_roles(keys, content.shape.vocabulary, content.roles);
  static_cast<void>(keys.finish(""));
}

std::string config_json(const GptShape& shape, const Roles& roles, const char* dtype) {
  const Family& family = family_of(shape);
  OrderedJson root = {{"architectures", OrderedJson::array({family.architecture})},
                      {"model_type", family.model_type}};
  KeyWriter keys(root);
  GptShape written = shape;
  family_keys(keys, family, written);
  if (family.kind == model::Family::gpt2)
    root.update({{"resid_pdrop", shape.dropout}, {"embd_pdrop", shape.dropout}});
  root[family.kind == model::Family::gpt2 ? "attn_pdrop" : "attention_dropout"] = shape.dropout;
  write_roles(root, roles);
  root["use_cache"] = true;
  root["torch_dtype"] = dtype;
  return root.dump(2) + "\n";
}

std::string generation_config_json(const Roles& roles) {
  OrderedJson root = {{"_from_model_config", true}};
  write_roles(root, roles);
  return root.dump(2) + "\n";
}

}  // namespace trireme::weights
