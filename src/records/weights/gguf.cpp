// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/round_up.hpp"

#include "text/vocabulary.hpp"
#include "text/write.hpp"

namespace trireme::weights {
namespace {

using text::Pattern;

constexpr std::int64_t alignment = 32;

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

/// A pre-tokenizer of llama.cpp (src/llama-vocab.cpp) and the equivalent pattern of ours. `whole`:
/// it looks up whole pieces among the tokens before it merges.
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

/// The first with this pattern that agrees on whole pieces, else the first with this pattern.
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
        word(vocabulary.pattern)));
  return found->name;
}

/// The numbers of types in the format.
std::uint32_t number_of(StoredType type) {
  constexpr std::uint32_t numbers[] = {0, 30, 1, 8};  // in the order of the enumeration
  return numbers[static_cast<std::size_t>(type)];
}

/// The number of the type of most tensors of a file (general.file_type).
std::uint32_t file_type(StoredType type) {
  return type == StoredType::q8_0 ? 7 : type == StoredType::bf16 ? 32 : number_of(type);
}

/// Appends values as the format stores them.
class Output {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_ += value;
  }
  /// Appends a value's type and the value. A list has one element type; if empty, it is text.
  void typed(const trireme::Json& value) {
    number(type_of(value));
    if (!value.is_array())
      return plain(value);
    number(value.empty() ? string_type : value[0].is_number_integer() ? i32 : type_of(value[0]));
    number(static_cast<std::uint64_t>(value.size()));
    for (const trireme::Json& one : value) plain(one);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  static constexpr std::uint32_t u32 = 4, i32 = 5, f32 = 6, boolean = 7, string_type = 8, list = 9;

  static std::uint32_t type_of(const trireme::Json& value) {
    return value.is_array()            ? list
           : value.is_string()         ? string_type
           : value.is_boolean()        ? boolean
           : value.is_number_integer() ? u32
                                       : f32;
  }
  void plain(const trireme::Json& value) {
    if (value.is_string())
      text(value.get_ref<const std::string&>());
    else if (value.is_boolean())
      number(static_cast<std::uint8_t>(value.get<bool>()));
    else if (value.is_number_integer())
      number(value.get<std::uint32_t>());
    else
      number(value.get<float>());
  }

  std::string bytes_;
};

void add_sizes(const GgufContent& content, trireme::Json& keys) {
  const model::GptShape& shape = content.shape;
  const std::string arch = content.family->model_type;
  keys["general.architecture"] = arch;
  keys["general.file_type"] = file_type(content.type);
  if (content.type == StoredType::q8_0)
    keys["general.quantization_version"] = 2;
  for (const auto& [key, value] : content.facts) keys[key] = value;
  keys[arch + ".block_count"] = shape.layers;
  keys[arch + ".context_length"] = shape.context;
  keys[arch + ".embedding_length"] = shape.channels;
  keys[arch + ".feed_forward_length"] = shape.mlp_channels();
  keys[arch + ".vocab_size"] = shape.vocabulary;
  keys[arch + ".attention.head_count"] = shape.heads;
  keys[arch + ".attention.head_count_kv"] = shape.key_value_heads();
  keys[arch + (shape.norm == model::Norm::layer_norm ? ".attention.layer_norm_epsilon"
                                                     : ".attention.layer_norm_rms_epsilon")] =
      shape.norm_epsilon;
  if (shape.positions == model::Positions::learned)
    return;
  keys[arch + ".attention.key_length"] = shape.head_channels();
  keys[arch + ".attention.value_length"] = shape.head_channels();
  keys[arch + ".rope.dimension_count"] = shape.head_channels();
  keys[arch + ".rope.freq_base"] = shape.rotary_theta;
  const model::RotaryScaling& s = shape.rotary_scaling;
  if (!s.active() || s.type == ops::RotaryScalingType::llama3)
    return;
  keys[arch + ".rope.scaling.type"] = word(s.type);
  keys[arch + ".rope.scaling.factor"] = s.factor;
  if (s.type == ops::RotaryScalingType::linear)
    return;
  keys[arch + ".rope.scaling.original_context_length"] = s.original_context;
  // llama.cpp multiplies this by YaRN's own factor.
  keys[arch + ".rope.scaling.attn_factor"] =
      s.attention_factor / model::yarn_attention_factor(s.factor);
}

/// Scores for llama.cpp, which performs the merge whose token has the highest score. Tokens of
/// equal rank have equal scores. Throws UserError if the resulting tokens would differ.
std::vector<float> scores_of(const text::Vocabulary& vocabulary, std::size_t tokens) {
  if (vocabulary.prefix == text::SpacePrefix::first_word ||
      vocabulary.prefix == text::SpacePrefix::words)
    throw UserError(
        "the tokenizer puts a space before words only (Metaspace), which llama.cpp cannot do. A "
        "program that reads a GGUF file would give other tokens.");
  std::vector<float> scores(tokens);
  // A list of merges defines an order of tokens only if all merges to one token are adjacent.
  const text::TokenOfBytes ids = text::ordinary_tokens(vocabulary);
  float rank = 0;
  text::Token before = -1;
  for (const auto& [first, second] : vocabulary.merges) {
    const text::Token made = ids.at(vocabulary[first].bytes + vocabulary[second].bytes);
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

void add_vocabulary(const GgufContent& content, trireme::Json& keys) {
  constexpr std::int32_t normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5,
                         byte = 6;
  if (content.tokenizer.empty()) {
    keys["tokenizer.ggml.model"] = "no_vocab";
    return;
  }
  const text::Vocabulary vocabulary = text::listed_vocabulary(content.tokenizer);
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  for (text::Token id = 0; id < content.shape.vocabulary; ++id) {
    const bool known = id < std::ssize(vocabulary.tokens) && !vocabulary[id].bytes.empty();
    tokens.push_back(known ? text::spelling_of(vocabulary, id) : fmt::format("[PAD{}]", id));
    types.push_back(!known                     ? unused
                    : tokens.back() == "<unk>" ? unknown
                    : vocabulary[id].special   ? control
                    : vocabulary[id].added     ? user_defined
                    : vocabulary[id].fallback  ? byte
                                               : normal);
  }
  keys["tokenizer.ggml.model"] = vocabulary.characters ? "llama" : "gpt2";
  keys["tokenizer.ggml.tokens"] = tokens;
  keys["tokenizer.ggml.token_type"] = types;
  if (vocabulary.characters) {
    keys["tokenizer.ggml.pre"] = "default";
    keys["tokenizer.ggml.scores"] = scores_of(vocabulary, tokens.size());
    keys["tokenizer.ggml.add_space_prefix"] = vocabulary.prefix != text::SpacePrefix::none;
    keys["tokenizer.ggml.remove_extra_whitespaces"] = false;
  } else {
    for (const auto& [first, second] : vocabulary.merges)
      merges.push_back(text::spelling_of(vocabulary, first) + " " +
                       text::spelling_of(vocabulary, second));
    keys["tokenizer.ggml.pre"] = pre_tokenizer_of(vocabulary);
    keys["tokenizer.ggml.merges"] = merges;
  }
  const Roles& roles = content.roles;
  const auto add = [&](const char* key, const std::optional<std::int32_t>& id) {
    if (id)
      keys[std::string("tokenizer.ggml.") + key] = *id;
  };
  add("bos_token_id", roles.begin);
  if (!roles.ends.empty())
    add("eos_token_id", roles.ends.front());
  if (roles.ends.size() > 1)
    add("eot_token_id", roles.ends[1]);
  add("padding_token_id", roles.padding);
  // A token that only begins texts is added to every prompt, as in Llama but not in GPT-2.
  keys["tokenizer.ggml.add_bos_token"] =
      roles.begin && std::ranges::find(roles.ends, *roles.begin) == roles.ends.end();
}

/// The frequency divisors (tensor rope_freqs.weight) for rotary positions that are scaled as in
/// Llama 3.1; empty for other scalings.
std::vector<float> rotary_divisors(const model::GptShape& shape) {
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

/// The file up to the data of the first tensor; each tensor begins at a multiple of `alignment`.
std::string header_of(const GgufContent& content) {
  const model::RotaryScaling &s = content.shape.rotary_scaling, usual;
  if (s.beta_slow != usual.beta_slow || s.beta_fast != usual.beta_fast)
    throw UserError(
        fmt::format("a GGUF file cannot express model.rotary_scaling.beta_slow: {} and beta_fast: "
                    "{}. llama.cpp uses {} and {}.",
                    s.beta_slow, s.beta_fast, usual.beta_slow, usual.beta_fast));
  trireme::Json keys;
  add_sizes(content, keys);
  add_vocabulary(content, keys);
  Output file;
  file.number(std::uint32_t{0x46554747});  // "GGUF"
  file.number(std::uint32_t{3});
  file.number(static_cast<std::uint64_t>(content.tensors.size()));
  file.number(static_cast<std::uint64_t>(keys.size()));
  for (const auto& [key, value] : keys.items()) {
    file.text(key);
    file.typed(value);
  }
  std::int64_t offset = 0;
  for (const TensorOutput& tensor : content.tensors) {
    const std::vector<std::int64_t>& shape = tensor.their.shape;
    file.text(tensor.their.name);
    file.number(static_cast<std::uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent)
      file.number(static_cast<std::uint64_t>(*extent));
    file.number(number_of(tensor.type));
    file.number(static_cast<std::uint64_t>(offset));
    offset = rounded_up(offset + tensor.bytes(), alignment);
  }
  std::string header = file.bytes();
  header.resize(static_cast<std::size_t>(rounded_up(std::ssize(header), alignment)), '\0');
  return header;
}

}  // namespace

StoredType gguf_type(const TheirTensor& tensor, StoredType wanted) {
  if (tensor.shape.size() == 1 || tensor.name == "position_embd.weight")
    return StoredType::f32;
  return wanted == StoredType::q8_0 && tensor.shape.back() % q8_0_block != 0 ? StoredType::f16
                                                                             : wanted;
}

std::span<const Family> gguf_families() {
  return architectures;
}

void write_gguf(GgufContent content, const StoredModel& model, files::Descriptor& file) {
  for (TensorOutput& tensor : content.tensors) tensor.type = gguf_type(tensor.their, content.type);
  const std::vector<float> divisors = rotary_divisors(content.shape);
  const std::size_t computed = divisors.empty() ? 0 : 1;
  if (computed > 0)
    content.tensors.insert(content.tensors.begin(),
                           {.their = {.name = "rope_freqs.weight", .shape = {std::ssize(divisors)}},
                            .zeros = std::ssize(divisors)});
  const auto align = [&] {
    file.write(std::string(
        static_cast<std::size_t>(rounded_up(file.size(), alignment) - file.size()), '\0'));
  };
  file.write(header_of(content));
  file.write(std::as_bytes(std::span(divisors)));
  align();
  TensorWriter writer(model);
  for (const TensorOutput& tensor : std::span(content.tensors).subspan(computed)) {
    writer.write(tensor, file);
    align();
  }
}

}  // namespace trireme::weights
