// SPDX-License-Identifier: Apache-2.0
#include "weights/export.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "files/new_directory.hpp"
#include "files/output_file.hpp"

#include "model/layers.hpp"

#include "text/vocabulary.hpp"
#include "text/write.hpp"

#include "weights/checkpoint_weights.hpp"
#include "weights/family.hpp"
#include "weights/gguf.hpp"
#include "weights/huggingface.hpp"
#include "weights/initial_weights.hpp"
#include "weights/llmc.hpp"
#include "weights/open.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {
namespace {

constexpr const char* gguf_file = "model.gguf";

constexpr std::int32_t llmc_tokenizer_magic = 20240328, llmc_tokenizer_version = 2;
/// The file stores the length of a token in one byte.
constexpr std::size_t most_llmc_bytes = 255;

/// Throws UserError for special tokens whose names are not UTF-8: JSON cannot store them. Adds a
/// note if tokenizer.json will divide some texts differently.
text::Vocabulary vocabulary_of(const std::string& serialized, std::vector<std::string>& notes) {
  text::Vocabulary vocabulary = text::listed_vocabulary(serialized);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& name = vocabulary.tokens[id].bytes;
    if (vocabulary.tokens[id].special && trireme::Json::parse(json_text(name)) != name)
      throw UserError(
          fmt::format("the name of special token {} of the tokenizer is not UTF-8, so the "
                      "tokenizer's files cannot be written",
                      id));
  }
  const auto symbol = std::ranges::find_if(
      vocabulary.tokens,
      [](const text::VocabularyEntry& entry) { return entry.added && !entry.special; });
  if (vocabulary.prefix == text::SpacePrefix::text && symbol != vocabulary.tokens.end())
    notes.push_back(
        fmt::format("with tokenizer.json, texts that contain a symbol that the tokenizer's user "
                    "defined (such as {}) get other tokens: it puts a space before every part of "
                    "the text between symbols, SentencePiece only before the text",
                    json_text(symbol->bytes)));
  return vocabulary;
}

/// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json. `serialized` is
/// text::Tokenizer::serialized(), `context` the maximum length of a text in tokens. Throws
/// UserError for a vocabulary without a list of merges for which none can be computed.
void write_huggingface_tokenizer(const files::NewDirectory& directory,
                                 const std::string& serialized,
                                 std::int64_t context,
                                 const Roles& roles,
                                 std::vector<std::string>& notes) {
  const text::Vocabulary vocabulary = vocabulary_of(serialized, notes);
  directory.write("tokenizer.json", text::tokenizer_json(vocabulary));
  if (!vocabulary.characters) {  // GPT-2's pair is for tokens of bytes
    directory.write("vocab.json", text::vocab_json(vocabulary));
    directory.write("merges.txt", text::merges_txt(vocabulary));
  }
  trireme::Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                          {"clean_up_tokenization_spaces", false},
                          {"model_max_length", context}};
  const auto spell = [&](const char* key, text::Token token) {
    if (vocabulary.has_special(token))
      config[key] = vocabulary[token].bytes;
  };
  config["add_bos_token"] = vocabulary.begin_of_text.has_value();
  spell("bos_token", roles.begin.value_or(-1));
  spell("eos_token", roles.ends.empty() ? -1 : roles.ends.front());
  spell("pad_token", roles.padding.value_or(-1));
  directory.write("tokenizer_config.json", json_text(config, 2));
}

/// Writes gpt2_tokenizer.bin, which llm.c's programs use to print tokens, and tokenizer.json with
/// the complete tokenizer. Adds a note if gpt2_tokenizer.bin cannot hold it.
void write_llmc_tokenizer(const files::NewDirectory& directory,
                          const std::string& serialized,
                          std::vector<std::string>& notes) {
  const text::Vocabulary vocabulary = vocabulary_of(serialized, notes);
  directory.write("tokenizer.json", text::tokenizer_json(vocabulary));
  if (!vocabulary.end_of_text) {
    notes.emplace_back(
        "gpt2_tokenizer.bin was not written: it needs an end-of-text token, which the tokenizer "
        "does not have");
    return;
  }
  std::array<std::int32_t, 256> header{llmc_tokenizer_magic, llmc_tokenizer_version,
                                       static_cast<std::int32_t>(vocabulary.tokens.size()),
                                       *vocabulary.end_of_text};
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id].bytes;
    if (token.size() > most_llmc_bytes) {
      notes.push_back(fmt::format(
          "gpt2_tokenizer.bin was not written: token {} has {} bytes, and the format allows {}", id,
          token.size(), most_llmc_bytes));
      return;
    }
    bytes.push_back(static_cast<char>(token.size()));
    bytes += token;
  }
  directory.write("gpt2_tokenizer.bin", bytes);
}

class Exporter {
 public:
  Exporter(const ExportRequest& request, const std::string& place)
      : request_(request), model_(open_model(place)), shape_(model_.shape) {
    exported_.source = model_.path;
    for (const StoredTensor& tensor : model_.tensors) by_parameter_[tensor.parameter] = &tensor;
    if (request.rows == ExportRows::tokenizer)
      cut_to_tokenizer();
  }

  Exported run() {
    expect_type();
    if (const auto beyond = parts_beyond_llmc(shape_);
        request_.format == ExportFormat::llmc && !beyond.empty())
      throw UserError({model_.shape_file},
                      fmt::format("llm.c's files, which store GPT-2, cannot express {}",
                                  fmt::join(beyond, ", ")));
    if (request_.format == ExportFormat::gguf)
      family_ = &family_of(shape_, model_.shape_file, "a GGUF file", gguf_families());
    if (request_.format == ExportFormat::huggingface)
      family_ = &family_of(shape_, model_.shape_file);
    files::NewDirectory directory(request_.output);
    if (request_.format == ExportFormat::llmc)
      write_llmc(directory);
    else if (request_.format == ExportFormat::gguf)
      write_gguf(directory);
    else
      write_huggingface(directory);
    directory.commit();
    if (shape_.masks_documents())
      exported_.notes.emplace_back(
          "model.document_mask is not part of this format: others let tokens see earlier "
          "documents");
    return std::move(exported_);
  }

 private:
  void expect_type() const {
    const bool half = request_.type == StoredType::f16;
    if (request_.format != ExportFormat::gguf && (half || request_.type == StoredType::q8_0))
      throw UserError(fmt::format("--dtype {} is only for --format gguf", half ? "fp16" : "q8_0"));
  }

  void cut_to_tokenizer() {
    const auto tokenizer = tokenizer_of(model_);
    if (!tokenizer)
      throw UserError(
          {model_.path},
          "the model has no tokenizer, so its vocabulary cannot be cut to the tokenizer's tokens");
    if (tokenizer->vocabulary() > shape_.vocabulary)
      throw UserError(
          {model_.tokenizer_place},
          fmt::format("the tokenizer has {} tokens, but the model has a vocabulary of {}",
                      tokenizer->vocabulary(), shape_.vocabulary));
    if (tokenizer->vocabulary() < shape_.vocabulary)
      exported_.notes.push_back(
          fmt::format("the last {} of {} rows of the vocabulary are not exported; the model gave "
                      "them some probability, so its losses change slightly",
                      shape_.vocabulary - tokenizer->vocabulary(), shape_.vocabulary));
    shape_.vocabulary = tokenizer->vocabulary();
  }

  void write_huggingface(const files::NewDirectory& directory) {
    const Roles roles = exported_roles();
    directory.write(
        "config.json",
        config_json(shape_, roles, request_.type == StoredType::f32 ? "float32" : "bfloat16"));
    directory.write("generation_config.json", generation_config_json(roles));
    if (model_.tokenizer.empty())
      exported_.notes.emplace_back("the model has no tokenizer, so none was exported");
    else
      write_huggingface_tokenizer(directory, model_.tokenizer, shape_.context, roles,
                                  exported_.notes);
    write_shards(directory, tensors_by_their_names());
    note_biases();
  }

  void write_gguf(const files::NewDirectory& directory) {
    GgufContent content{.family = family_,
                        .shape = shape_,
                        .type = request_.type,
                        .roles = exported_roles(),
                        .tokenizer = model_.tokenizer,
                        .tensors = tensors_by_their_names()};
    if (request_.type == StoredType::q8_0)
      note_rows_without_blocks(content.tensors);
    if (const auto hash = hash_of_weights())
      content.facts = {{"trireme.weights_hash", fmt::format("{:016x}", *hash)}};
    files::Descriptor file = files::new_file(directory.file(gguf_file));
    weights::write_gguf(std::move(content), model_, file);
    finish(file, gguf_file);
    if (model_.tokenizer.empty())
      exported_.notes.emplace_back("the model has no tokenizer, so the file has no vocabulary");
    note_biases();
  }

  /// weights_hash() of the model before it was rounded or cut, if it is a checkpoint.
  [[nodiscard]] std::optional<std::uint64_t> hash_of_weights() const {
    std::vector<std::uint64_t> hashes;
    for (const StoredTensor& tensor : model_.tensors)
      if (tensor.content_hash)
        hashes.push_back(*tensor.content_hash);
    if (hashes.size() != model_.tensors.size())
      return std::nullopt;
    return weights_hash(model::parameter_table(model_.shape), hashes);
  }

  [[nodiscard]] Roles exported_roles() const {
    Roles roles = roles_of(model_);
    return roles.within(shape_.vocabulary) ? roles : Roles{};
  }

  void note_rows_without_blocks(const std::vector<TensorOutput>& tensors) {
    const auto count = std::ranges::count_if(tensors, [](const TensorOutput& tensor) {
      return gguf_type(tensor.their, StoredType::q8_0) == StoredType::f16;
    });
    if (count > 0)
      exported_.notes.push_back(fmt::format(
          "{} tensors are stored as fp16: their rows cannot be divided into q8_0's blocks of {}",
          count, q8_0_block));
  }

  void note_biases() {
    if (!shape_.bias && family_->always_biased)
      exported_.notes.emplace_back("the model has no biases: those in the files are zero");
  }

  /// In registration order.
  std::vector<TensorOutput> tensors_by_their_names() const {
    model::GptShape with_bias = shape_;
    with_bias.bias = shape_.bias || family_->always_biased;
    std::vector<TensorOutput> tensors;
    for (const layout::Parameter& parameter : model::parameter_table(with_bias))
      for (TheirTensor& their : their_tensors(*family_, with_bias, parameter)) {
        if (parameter.name != "head.weight")
          their.name.insert(0, family_->prefix);
        TensorOutput output{.zeros = their.elements(), .type = request_.type};
        if (const auto mine = by_parameter_.find(parameter.name); mine != by_parameter_.end()) {
          output.tensor = mine->second;
          output.elements = std::exchange(output.zeros, 0);
          output.elements_of_parameter = their.begin == 0 ? parameter.elements() : 0;
        }
        output.their = std::move(their);
        tensors.push_back(std::move(output));
      }
    return tensors;
  }

  void write_shards(const files::NewDirectory& directory,
                    const std::vector<TensorOutput>& tensors) {
    std::vector<std::vector<TensorOutput>> shards(1);
    std::int64_t used = 0, total = 0;
    for (const TensorOutput& tensor : tensors) {
      if (!shards.back().empty() && used + tensor.bytes() > request_.shard_bytes) {
        shards.emplace_back();
        used = 0;
      }
      shards.back().push_back(tensor);
      used += tensor.bytes();
      total += tensor.bytes();
    }
    trireme::Json map = trireme::Json::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shards.size() == 1 ? "model.safetensors"
                                                  : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                                i + 1, shards.size());
      for (const TensorOutput& tensor : shards[i]) map[tensor.their.name] = name;
      write_safetensors(directory, name, std::move(shards[i]));
    }
    if (shards.size() > 1)
      directory.write(
          "model.safetensors.index.json",
          trireme::Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
  }

  void write_safetensors(const files::NewDirectory& directory,
                         const std::string& file_name,
                         std::vector<TensorOutput> tensors) {
    std::ranges::sort(
        tensors, {}, [](const TensorOutput& tensor) -> auto& { return tensor.their.name; });
    trireme::Json header, metadata = {{"format", "pt"}};
    TensorReader reader(model_);
    for (const TensorOutput& output : tensors) {
      const std::int64_t elements = output.elements_of_parameter;
      if (elements == 0)
        continue;
      const StoredTensor& tensor = *output.tensor;
      const bool known =
          tensor.content_hash && request_.type == StoredType::f32 && elements == tensor.elements();
      const std::uint64_t hash =
          known ? *tensor.content_hash : reader.hash(tensor, elements, request_.type);
      metadata[hash_key + tensor.parameter] = fmt::format("{:016x}", hash);
    }
    header["__metadata__"] = std::move(metadata);
    std::int64_t at = 0;
    for (const TensorOutput& tensor : tensors) {
      const std::int64_t end = at + tensor.bytes();
      header[tensor.their.name] = {{"dtype", word(request_.type)},
                                   {"shape", tensor.stored_shape()},
                                   {"data_offsets", {at, end}}};
      at = end;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    files::Descriptor file = files::new_file(directory.file(file_name));
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(text);
    TensorWriter writer(model_);
    for (const TensorOutput& tensor : tensors) writer.write(tensor, file);
    finish(file, file_name);
  }

  void write_llmc(const files::NewDirectory& directory) {
    model::GptShape with_bias = shape_;
    with_bias.bias = true;
    const std::string file_name = fmt::format("model_{:08}.bin", model_.step);
    files::Descriptor file = files::new_file(directory.file(file_name));
    const LlmcHeader header = llmc_header(with_bias, request_.type);
    file.write(std::as_bytes(std::span(header)));
    TensorWriter writer(model_);
    for (const LlmcElement& element : llmc_order(with_bias)) {
      const auto mine = by_parameter_.find(element.parameter.name);
      const std::int64_t elements = element.parameter.elements();
      TensorOutput output{.zeros = element.unused, .type = request_.type};
      if (mine != by_parameter_.end())
        output.tensor = mine->second;
      (output.tensor != nullptr ? output.elements : output.zeros) += elements;
      writer.write(output, file);
    }
    finish(file, file_name);
    if (model_.tokenizer.empty())
      exported_.notes.emplace_back("the model has no tokenizer, so none was exported");
    else
      write_llmc_tokenizer(directory, model_.tokenizer, exported_.notes);
    if (!shape_.bias)
      exported_.notes.emplace_back("the model has no biases: those in the file are zero");
  }

  void finish(files::Descriptor& file, const std::string& name) {
    exported_.files.push_back(name);
    exported_.bytes += file.size();
    files::finish(file);
    exported_.parameters = layout::total_elements(model::parameter_table(shape_));
  }

  const ExportRequest& request_;
  const StoredModel model_;
  model::GptShape shape_;  // with the exported rows
  const Family* family_ = nullptr;
  std::map<std::string_view, const StoredTensor*> by_parameter_;
  Exported exported_;
};

}  // namespace

Exported export_model(const ExportRequest& request) {
  files::expect_new_directory(request.output);
  for (int tries = 1;; ++tries) {
    const std::string place = place_of_model(request.source, request.step);
    try {
      return Exporter(request, place).run();
    } catch (const std::exception&) {
      if (!was_removed(place, request.source, tries))
        throw;
    }
  }
}

}  // namespace trireme::weights
