// SPDX-License-Identifier: Apache-2.0
#include "weights/export.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "files/new_directory.hpp"
#include "files/output_file.hpp"

#include "model/layers.hpp"

#include "weights/checkpoint_weights.hpp"
#include "weights/family.hpp"
#include "weights/huggingface.hpp"
#include "weights/llmc.hpp"
#include "weights/open.hpp"
#include "weights/tensor_writer.hpp"
#include "weights/tokenizer_files.hpp"

namespace trireme::weights {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// A tensor of a safetensors file.
struct Named {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorOutput output = {};

  [[nodiscard]] std::int64_t elements() const { return output.elements + output.zeros; }
};

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
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
    if (request_.format == ExportFormat::llmc && !shape_.tied_head)
      throw UserError(
          {model_.shape_file},
          "its head is not tied to its embedding, and llm.c's files cannot store an untied head");
    expect_known_parts();
    files::NewDirectory directory(request_.output);
    if (request_.format == ExportFormat::llmc)
      write_llmc(directory);
    else
      write_huggingface(directory);
    directory.commit();
    return std::move(exported_);
  }

 private:
  /// Throws where the format cannot describe the model.
  void expect_known_parts() const {
    const Family* family = find_family(shape_);
    const auto written_as = [&](model::Family kind) {
      return request_.format == ExportFormat::huggingface && family != nullptr &&
             family->kind == kind;
    };
    if (shape_.attention_window > 0 && !written_as(model::Family::qwen3))
      throw UserError(
          {model_.shape_file},
          fmt::format(
              "model.attention_window is {}, which config.json of GPT-2, Llama and nanochat and "
              "llm.c's files cannot express: a program that reads them would attend to more tokens",
              shape_.attention_window));
    if (shape_.logit_softcap > 0 && !written_as(model::Family::nanochat))
      throw UserError(
          {model_.shape_file},
          fmt::format(
              "model.logit_softcap is {}, which config.json of GPT-2, Llama and Qwen3 and llm.c's "
              "files cannot express: a program that reads them would compute different logits",
              shape_.logit_softcap));
    const auto parts = [&] {
      return fmt::format(
          "{} {} gain, {} embedding norm, {}, {} positions, qk_norm {}, {} heads of {} channels "
          "over {} of keys and values, {} biases",
          word(shape_.norm), shape_.norm_gain ? "with" : "without",
          shape_.embedding_norm ? "an" : "no", word(shape_.activation), word(shape_.positions),
          word(shape_.qk_norm), shape_.heads, shape_.head_channels(), shape_.key_value_heads(),
          shape_.bias ? "with" : "no");
    };
    if (request_.format == ExportFormat::llmc && !is_llmc_model(shape_))
      throw UserError({model_.shape_file},
                      fmt::format("{}: llm.c's files can only store GPT-2 with gelu, 4 x channels "
                                  "in the MLP and an epsilon of 1e-5",
                                  parts()));
    if (family == nullptr)
      throw UserError({model_.shape_file},
                      fmt::format("{}: neither GPT-2 (layer_norm, gelu or squared_relu, learned, "
                                  "as many heads of keys) nor Llama (rms_norm, swiglu, rotary), "
                                  "Qwen3 (the same, qk_norm with_gain, no biases) or nanochat "
                                  "(rms_norm without gain and after the embedding, squared_relu, "
                                  "rotary, qk_norm without_gain, no biases)",
                                  parts()));
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

  [[nodiscard]] std::int64_t end_of_text() const {
    const auto tokenizer = tokenizer_of(model_);
    return tokenizer && tokenizer->end_of_text() ? *tokenizer->end_of_text() : -1;
  }

  [[nodiscard]] std::vector<std::int32_t> ends_of_text() const {
    const auto tokenizer = tokenizer_of(model_);
    return tokenizer ? tokenizer->ends_of_text() : std::vector<std::int32_t>();
  }

  void write_huggingface(const files::NewDirectory& directory) {
    const ConfigFacts facts{.dtype = request_.type == StoredType::f32 ? "float32" : "bfloat16",
                            .end_of_text = end_of_text(),
                            .ends_of_text = ends_of_text(),
                            .dropout = shape_.dropout};
    directory.write("config.json", config_json(shape_, facts));
    directory.write("generation_config.json", generation_config_json(facts));
    if (model_.tokenizer.empty())
      exported_.notes.emplace_back("the model has no tokenizer, so none was exported");
    else
      write_huggingface_tokenizer(directory, model_.tokenizer, shape_.context);
    write_shards(directory, tensors_by_their_names());
    if (!shape_.bias && family_of(shape_).always_biased)
      exported_.notes.emplace_back("the model has no biases: those in the folder are zero");
  }

  /// In registration order.
  std::vector<Named> tensors_by_their_names() const {
    const Family& family = family_of(shape_);
    model::GptShape with_bias = shape_;
    with_bias.bias = shape_.bias || family.always_biased;
    std::vector<Named> tensors;
    for (const layout::Parameter& parameter : model::parameter_table(with_bias))
      for (const TheirTensor& their : their_tensors(family, with_bias, parameter)) {
        Named named{.name = their.name, .shape = their.shape};
        if (parameter.name != "head.weight")
          named.name.insert(0, family.prefix);
        const auto mine = by_parameter_.find(parameter.name);
        if (mine == by_parameter_.end())
          named.output.zeros = their.elements();
        else
          named.output = {
              mine->second,     their.transposed,
              their.elements(), 0,
              their.begin,      their.swapped_rows * (their.elements() / their.shape.at(0))};
        if (their.transposed)
          std::ranges::reverse(named.shape);
        tensors.push_back(std::move(named));
      }
    return tensors;
  }

  void write_shards(const files::NewDirectory& directory, const std::vector<Named>& tensors) {
    const auto size = static_cast<std::int64_t>(size_bytes(request_.type));
    std::vector<std::vector<Named>> shards(1);
    std::int64_t used = 0, total = 0;
    for (const Named& tensor : tensors) {
      const std::int64_t bytes = tensor.elements() * size;
      if (!shards.back().empty() && used + bytes > request_.shard_bytes) {
        shards.emplace_back();
        used = 0;
      }
      shards.back().push_back(tensor);
      used += bytes;
      total += bytes;
    }
    OrderedJson map = OrderedJson::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shards.size() == 1 ? "model.safetensors"
                                                  : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                                i + 1, shards.size());
      for (const Named& tensor : shards[i]) map[tensor.name] = name;
      write_safetensors(directory, name, std::move(shards[i]));
    }
    if (shards.size() > 1)
      directory.write(
          "model.safetensors.index.json",
          OrderedJson{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
  }

  void write_safetensors(const files::NewDirectory& directory,
                         const std::string& file_name,
                         std::vector<Named> tensors) {
    std::ranges::sort(tensors, {}, &Named::name);
    OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
    std::int64_t at = 0;
    for (const Named& tensor : tensors) {
      const std::int64_t end =
          at + tensor.elements() * static_cast<std::int64_t>(size_bytes(request_.type));
      header[tensor.name] = {
          {"dtype", name(request_.type)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
      at = end;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    files::Descriptor file = files::new_file(directory.file(file_name));
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(text);
    TensorWriter writer(model_, request_.type);
    for (const Named& tensor : tensors) {
      TRIREME_ASSERT(tensor.elements() == product(tensor.shape), "{} of {} elements", tensor.name,
                     tensor.elements());
      writer.write(tensor.output, file);
    }
    finish(file, file_name);
  }

  void write_llmc(const files::NewDirectory& directory) {
    model::GptShape with_bias = shape_;
    with_bias.bias = true;
    const std::string file_name = fmt::format("model_{:08}.bin", model_.step);
    files::Descriptor file = files::new_file(directory.file(file_name));
    const LlmcHeader header = llmc_header(with_bias, request_.type);
    file.write(std::as_bytes(std::span(header)));
    TensorWriter writer(model_, request_.type);
    for (const LlmcElement& element : llmc_order(with_bias)) {
      const auto mine = by_parameter_.find(element.parameter.name);
      const std::int64_t elements = element.parameter.elements();
      TensorOutput output{.zeros = element.unused};
      if (mine == by_parameter_.end())
        output.zeros += elements;
      else
        output = {mine->second, false, elements, element.unused};
      writer.write(output, file);
    }
    finish(file, file_name);
    if (model_.tokenizer.empty())
      exported_.notes.emplace_back("the model has no tokenizer, so none was exported");
    else if (auto note = write_llmc_tokenizer(directory, model_.tokenizer); !note.empty())
      exported_.notes.push_back(std::move(note));
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
