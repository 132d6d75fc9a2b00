// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "text/vocabulary.hpp"
#include "text/write.hpp"

namespace trireme::weights {
namespace {

using text::Pattern;

constexpr NameRule gpt2_tensors[] = {{"wte", {"token_embd"}},
                                     {"wpe", {"position_embd"}},
                                     {"h.#.ln_1", {"blk.#.attn_norm"}},
                                     {"h.#.attn.qkv", {"blk.#.attn_qkv"}},
                                     {"h.#.attn.proj", {"blk.#.attn_output"}},
                                     {"h.#.ln_2", {"blk.#.ffn_norm"}},
                                     {"h.#.mlp.fc", {"blk.#.ffn_up"}},
                                     {"h.#.mlp.proj", {"blk.#.ffn_down"}},
                                     {"ln_f", {"output_norm"}},
                                     {"head", {"output"}}};

constexpr std::array<std::string_view, 3> query_key_value = {"blk.#.attn_q", "blk.#.attn_k",
                                                             "blk.#.attn_v"};
/// Only the architecture llama rotates neighbouring channels.
template <HeadRows Rows>
constexpr NameRule llama_tensors[] = {{"wte", {"token_embd"}},
                                      {"h.#.ln_1", {"blk.#.attn_norm"}},
                                      {"h.#.attn.qkv", query_key_value, false, Rows},
                                      {"h.#.attn.q_norm", {"blk.#.attn_q_norm"}},
                                      {"h.#.attn.k_norm", {"blk.#.attn_k_norm"}},
                                      {"h.#.attn.proj", {"blk.#.attn_output"}},
                                      {"h.#.ln_2", {"blk.#.ffn_norm"}},
                                      {"h.#.mlp.fc", {"blk.#.ffn_gate", "blk.#.ffn_up"}},
                                      {"h.#.mlp.proj", {"blk.#.ffn_down"}},
                                      {"ln_f", {"output_norm"}},
                                      {"head", {"output"}}};

constexpr Family architecture(model::Family kind,
                              const char* name,
                              std::span<const NameRule> names) {
  const bool gpt2 = kind == model::Family::gpt2, llama = kind == model::Family::llama;
  return {.kind = kind,
          .model_type = name,
          .architecture = name,
          .prefix = "",
          .names = names,
          .buffers = {},
          .may_have_biases = gpt2 || llama,
          .always_biased = gpt2,
          .scales_as_llama3 = llama};
}
constexpr Family architectures[] = {
    architecture(model::Family::gpt2, "gpt2", gpt2_tensors),
    architecture(model::Family::llama, "llama", llama_tensors<HeadRows::interleaved>),
    architecture(model::Family::qwen2, "qwen2", llama_tensors<HeadRows::ours>),
    architecture(model::Family::qwen3, "qwen3", llama_tensors<HeadRows::ours>)};

/// How llama.cpp cuts texts (src/llama-vocab.cpp), by our pattern; `whole` if it then looks for
/// whole pieces among the tokens before it merges.
struct PreTokenizer {
  Pattern pattern;
  const char* name;
  bool whole = false;
};
constexpr PreTokenizer pre_tokenizers[] = {
    {Pattern::gpt2, "gpt-2"},          {Pattern::llama3, "llama-bpe", true},
    {Pattern::llama3, "dbrx"},         {Pattern::cl100k, "dbrx"},
    {Pattern::qwen2, "qwen2"},         {Pattern::o200k, "gpt-4o"},
    {Pattern::tekken, "tekken", true}, {Pattern::deepseek, "deepseek-v3"},
    {Pattern::smollm, "smollm"}};

/// The first with the pattern that treats whole pieces as the tokenizer does, else with the pattern.
const char* pre_tokenizer_of(const text::Vocabulary& vocabulary) {
  const PreTokenizer* found = nullptr;
  for (const PreTokenizer& one : pre_tokenizers)
    if (one.pattern == vocabulary.pattern &&
        (found == nullptr ||
         (found->whole != vocabulary.whole_pieces && one.whole == vocabulary.whole_pieces)))
      found = &one;
  if (found == nullptr)
    throw UserError(fmt::format(
        "the tokenizer cuts texts by the pattern {}, for which llama.cpp has no pre-tokenizer. A "
        "program that reads a GGUF file would give other tokens.",
        text::name_of(vocabulary.pattern)));
  return found->name;
}

/// The numbers of types in the format.
std::uint32_t number_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return 0;
    case StoredType::f16:
      return 1;
    case StoredType::q8_0:
      return 8;
    case StoredType::bf16:
      return 30;
  }
  return 0;
}

/// The number of the type of most tensors of a file (general.file_type).
std::uint32_t file_type(StoredType type) {
  return type == StoredType::q8_0 ? 7 : type == StoredType::bf16 ? 32 : number_of(type);
}

/// Appends keys with their values.
class Keys {
 public:
  void add(const std::string& key, std::uint32_t value) { put(key, 4, value); }
  void add(const std::string& key, std::int64_t value) {
    add(key, static_cast<std::uint32_t>(value));
  }
  void add(const std::string& key, double value) { put(key, 6, static_cast<float>(value)); }
  void add(const std::string& key, bool value) { put(key, 7, static_cast<std::uint8_t>(value)); }
  void add(const std::string& key, const std::string& value) {
    begin(key, string_type);
    text(value);
  }
  void add(const std::string& key, const std::vector<std::string>& values) {
    begin_array(key, string_type, values.size());
    for (const std::string& value : values) text(value);
  }
  void add(const std::string& key, const std::vector<std::int32_t>& values) {
    begin_array(key, 5, values.size());
    for (const std::int32_t value : values) number(value);
  }
  void add(const std::string& key, const std::vector<float>& values) {
    begin_array(key, 6, values.size());
    for (const float value : values) number(value);
  }

  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_ += value;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  static constexpr std::uint32_t string_type = 8, array_type = 9;

  void begin(const std::string& key, std::uint32_t type) {
    ++count_;
    text(key);
    number(type);
  }
  void begin_array(const std::string& key, std::uint32_t type, std::size_t size) {
    begin(key, array_type);
    number(type);
    number(static_cast<std::uint64_t>(size));
  }
  template <class T>
  void put(const std::string& key, std::uint32_t type, T value) {
    begin(key, type);
    number(value);
  }

  std::string bytes_;
  std::uint64_t count_ = 0;
};

void add_sizes(const GgufContent& content, Keys& keys) {
  const model::GptShape& shape = content.shape;
  const std::string arch = content.family->model_type;
  keys.add("general.architecture", arch);
  keys.add("general.file_type", file_type(content.type));
  if (content.type == StoredType::q8_0)
    keys.add("general.quantization_version", std::uint32_t{2});
  for (const auto& [key, value] : content.facts) keys.add(key, value);
  keys.add(arch + ".block_count", shape.layers);
  keys.add(arch + ".context_length", shape.context);
  keys.add(arch + ".embedding_length", shape.channels);
  keys.add(arch + ".feed_forward_length", shape.mlp_channels());
  keys.add(arch + ".vocab_size", shape.vocabulary);
  keys.add(arch + ".attention.head_count", shape.heads);
  keys.add(arch + ".attention.head_count_kv", shape.key_value_heads());
  keys.add(arch + (shape.norm == model::Norm::layer_norm ? ".attention.layer_norm_epsilon"
                                                         : ".attention.layer_norm_rms_epsilon"),
           shape.norm_epsilon);
  if (shape.positions == model::Positions::learned)
    return;
  keys.add(arch + ".attention.key_length", shape.head_channels());
  keys.add(arch + ".attention.value_length", shape.head_channels());
  keys.add(arch + ".rope.dimension_count", shape.head_channels());
  keys.add(arch + ".rope.freq_base", shape.rotary_theta);
  const model::RotaryScaling& s = shape.rotary_scaling;
  if (!s.active() || s.type == ops::RotaryScalingType::llama3)
    return;
  keys.add(arch + ".rope.scaling.type", std::string(word(s.type)));
  keys.add(arch + ".rope.scaling.factor", s.factor);
  if (s.type == ops::RotaryScalingType::linear)
    return;
  keys.add(arch + ".rope.scaling.original_context_length", s.original_context);
  // llama.cpp multiplies this by YaRN's own factor.
  keys.add(arch + ".rope.scaling.attn_factor",
           s.attention_factor / model::yarn_attention_factor(s.factor));
}

/// llama.cpp merges what makes the token of the highest score. Tokens of equal rank have equal
/// scores. Throws UserError where it would give other tokens.
std::vector<float> scores_of(const text::Vocabulary& vocabulary, std::size_t tokens) {
  if (vocabulary.prefix == text::SpacePrefix::first_word ||
      vocabulary.prefix == text::SpacePrefix::words)
    throw UserError(
        "the tokenizer puts a space before words only (Metaspace), which llama.cpp cannot do. A "
        "program that reads a GGUF file would give other tokens.");
  std::vector<float> scores(tokens);
  // A list of merges is an order of tokens if all merges that make a token follow each other.
  std::unordered_map<std::string, text::Token> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (vocabulary.tokens[id].ordinary())
      ids.emplace(vocabulary.tokens[id].bytes, static_cast<text::Token>(id));
  float rank = 0;
  text::Token before = -1;
  for (const auto& [first, second] : vocabulary.merges) {
    const auto& bytes = [&](text::Token id) -> const std::string& {
      return vocabulary.tokens[static_cast<std::size_t>(id)].bytes;
    };
    const text::Token made = ids.at(bytes(first) + bytes(second));
    float& score = scores[static_cast<std::size_t>(made)];
    if (made != before && score != 0)
      throw UserError(
          "the tokenizer's merges are in no order of their tokens, which llama.cpp's model of "
          "SentencePiece needs. A program that reads a GGUF file would give other tokens.");
    if (made != before)
      score = --rank;
    before = made;
  }
  return scores;
}

void add_vocabulary(const GgufContent& content, Keys& keys) {
  constexpr std::int32_t normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5,
                         byte = 6;
  if (content.tokenizer.empty())
    return keys.add("tokenizer.ggml.model", std::string("no_vocab"));
  const text::Vocabulary vocabulary = text::listed_vocabulary(content.tokenizer);
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  const auto spelling = [&](text::Token id) {
    return text::spelling_of(vocabulary, vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  for (std::int64_t id = 0; id < content.shape.vocabulary; ++id) {
    const auto at = static_cast<std::size_t>(id);
    const bool known = at < vocabulary.tokens.size() && !vocabulary.tokens[at].bytes.empty();
    tokens.push_back(known ? spelling(static_cast<text::Token>(id)) : fmt::format("[PAD{}]", id));
    types.push_back(!known                           ? unused
                    : tokens.back() == "<unk>"       ? unknown
                    : vocabulary.tokens[at].special  ? control
                    : vocabulary.tokens[at].added    ? user_defined
                    : vocabulary.tokens[at].fallback ? byte
                                                     : normal);
  }
  keys.add("tokenizer.ggml.model", std::string(vocabulary.characters ? "llama" : "gpt2"));
  keys.add("tokenizer.ggml.tokens", tokens);
  keys.add("tokenizer.ggml.token_type", types);
  if (vocabulary.characters) {
    keys.add("tokenizer.ggml.pre", std::string("default"));
    keys.add("tokenizer.ggml.scores", scores_of(vocabulary, tokens.size()));
    keys.add("tokenizer.ggml.add_space_prefix", vocabulary.prefix != text::SpacePrefix::none);
    keys.add("tokenizer.ggml.remove_extra_whitespaces", false);
  } else {
    for (const auto& [first, second] : vocabulary.merges)
      merges.push_back(spelling(first) + " " + spelling(second));
    keys.add("tokenizer.ggml.pre", std::string(pre_tokenizer_of(vocabulary)));
    keys.add("tokenizer.ggml.merges", merges);
  }
  const Roles& roles = content.roles;
  const auto add = [&](const char* key, const std::optional<std::int32_t>& id) {
    if (id)
      keys.add(std::string("tokenizer.ggml.") + key, std::int64_t{*id});
  };
  add("bos_token_id", roles.begin);
  if (!roles.ends.empty())
    add("eos_token_id", roles.ends.front());
  if (roles.ends.size() > 1)
    add("eot_token_id", roles.ends[1]);
  add("padding_token_id", roles.padding);
  // A token that only begins texts begins every prompt, as in Llama and unlike in GPT-2.
  keys.add("tokenizer.ggml.add_bos_token",
           roles.begin && std::ranges::find(roles.ends, *roles.begin) == roles.ends.end());
}

}  // namespace

std::span<const Family> gguf_families() {
  return architectures;
}

StoredType gguf_type(const TheirTensor& tensor, StoredType wanted) {
  if (tensor.shape.size() == 1 || tensor.name == "position_embd.weight")
    return StoredType::f32;
  return wanted == StoredType::q8_0 && tensor.shape.back() % q8_0_block != 0 ? StoredType::f16
                                                                             : wanted;
}

std::vector<float> gguf_rotary_divisors(const model::GptShape& shape) {
  const model::RotaryScaling& s = shape.rotary_scaling;
  if (!s.active() || s.type != ops::RotaryScalingType::llama3)
    return {};
  const auto plain = ops::rotary_frequencies(shape.head_channels(), shape.rotary_theta, {});
  const auto scaled = ops::rotary_frequencies(shape.head_channels(), shape.rotary_theta, s);
  std::vector<float> divisors;
  for (std::size_t j = 0; j < plain.size(); ++j)
    divisors.push_back(static_cast<float>(plain[j] / scaled[j]));
  return divisors;
}

std::string gguf_header(const GgufContent& content) {
  const model::RotaryScaling &s = content.shape.rotary_scaling, usual;
  if (s.beta_slow != usual.beta_slow || s.beta_fast != usual.beta_fast)
    throw UserError(
        fmt::format("a GGUF file cannot express model.rotary_scaling.beta_slow: {} and beta_fast: "
                    "{}. llama.cpp "
                    "uses {} and {}.",
                    s.beta_slow, s.beta_fast, usual.beta_slow, usual.beta_fast));
  Keys keys;
  add_sizes(content, keys);
  add_vocabulary(content, keys);
  Keys file;
  file.number(std::uint32_t{0x46554747});  // "GGUF"
  file.number(std::uint32_t{3});
  file.number(static_cast<std::uint64_t>(content.tensors.size()));
  file.number(keys.count());
  std::string header = file.bytes() + keys.bytes();
  Keys list;
  std::int64_t offset = 0;
  for (const TensorOutput& tensor : content.tensors) {
    const std::vector<std::int64_t>& shape = tensor.their.shape;
    list.text(tensor.their.name);
    list.number(static_cast<std::uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent)
      list.number(static_cast<std::uint64_t>(*extent));
    list.number(number_of(tensor.type));
    list.number(static_cast<std::uint64_t>(offset));
    offset = rounded_up(offset + tensor.bytes(), gguf_alignment);
  }
  header += list.bytes();
  header.resize(static_cast<std::size_t>(rounded_up(std::ssize(header), gguf_alignment)), '\0');
  return header;
}

}  // namespace trireme::weights
