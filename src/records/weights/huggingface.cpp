// SPDX-License-Identifier: Apache-2.0
#include "weights/huggingface.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"

#include "model/layers.hpp"

#include "weights/family.hpp"
#include "weights/safetensors.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {
namespace {

namespace fs = std::filesystem;
using text::Json;

constexpr const char* config_file = "config.json";
constexpr const char* generation_file = "generation_config.json";
constexpr const char* one_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
/// In every family, without a prefix.
constexpr const char* head_name = "lm_head.weight";

struct Found {
  std::int64_t file = 0;
  SafetensorsEntry entry;
};

/// The folder's tensors by name, and its files.
class Folder {
 public:
  Folder(std::string directory, const Family& family, StoredModel& model)
      : directory_(std::move(directory)), family_(family), model_(model) {}

  void read() {
    const std::string one = directory_ + "/" + one_file, index = directory_ + "/" + index_file;
    if (fs::exists(one))
      take_file(one_file, {});
    else
      take_shards(index);
    findings_.settle();
    const bool bias = model_.shape.bias;
    model_.shape.bias = bias || family_.always_biased;
    for (const layout::Parameter& parameter : model::parameter_table(model_.shape)) take(parameter);
    model_.shape.bias = bias;
    refuse_rest();
    findings_.settle();
    compare_tied_head();
    if (!bias && family_.always_biased)
      drop_biases();
    findings_.settle();
  }

 private:
  void say(std::string file, std::string_view subject, std::string text) {
    findings_.add({std::move(file)}, text::shortened(subject), std::move(text));
  }

  void take_file(const std::string& name, const std::set<std::string>& expected) {
    const std::string path = directory_ + "/" + name;
    const auto number = std::ssize(model_.files);
    model_.files.push_back(path);
    std::set<std::string> missing = expected;
    try {
      SafetensorsHeader header = read_safetensors(files::InputFile(path));
      for (const auto& [key, value] : header.metadata)
        if (key.starts_with(hash_key))
          hashes_[key.substr(hash_key.size())] = std::strtoull(value.c_str(), nullptr, 16);
      for (SafetensorsEntry& entry : header.tensors) {
        if (!expected.empty() && missing.erase(entry.name) == 0)
          say(path, entry.name, fmt::format("{} does not list it in this file", index_file));
        std::string known = entry.name;
        if (known.starts_with(family_.prefix))
          known.erase(0, family_.prefix.size());
        const std::string said = entry.name;
        if (!found_.try_emplace(known, Found{number, std::move(entry)}).second)
          say(path, said, "this tensor occurs twice");
      }
    } catch (const UserError& error) {
      for (const Diagnostic& finding : error.findings()) findings_.add(finding);
      return;
    } catch (const StorageError& error) {
      return say(path, "", error.reason());
    }
    for (const std::string& name_of_missing : missing)
      say(path, name_of_missing, fmt::format("not in this file, in which {} lists it", index_file));
  }

  void take_shards(const std::string& index) {
    const Json root = text::parse_json(text::read_bounded(index));
    const Json& map = root.is_object() ? text::member(root, "weight_map") : root;
    if (!root.is_object() || !map.is_object())
      text::refuse_key(index, "weight_map", "expected an object {\"tensor\": \"file\", ...}");
    std::map<std::string, std::set<std::string>> shards;
    for (const auto& [name, file] : map.items()) {
      const std::string word = file.is_string() ? file.get<std::string>() : "";
      if (word.empty() || word.find('/') != std::string::npos || word == "." || word == "..")
        say(index, "weight_map." + name, "expected the name of a file in the folder");
      else
        shards[word].insert(name);
    }
    for (const auto& [file, names] : shards) take_file(file, names);
  }

  void take(const layout::Parameter& parameter) {
    StoredTensor tensor{.parameter = parameter.name, .shape = parameter.shape};
    bool whole = true;
    for (const TheirTensor& their : their_tensors(family_, model_.shape, parameter)) {
      used_.insert(their.name);
      whole = take_part(parameter, their, tensor) && whole;
    }
    if (const auto hash = hashes_.find(parameter.name); hash != hashes_.end())
      tensor.content_hash = hash->second;
    if (whole)
      model_.tensors.push_back(std::move(tensor));
  }

  /// Adds the tensor as an extent of `tensor`, or reports what is wrong with it.
  bool take_part(const layout::Parameter& parameter,
                 const TheirTensor& their,
                 StoredTensor& tensor) {
    const auto found = found_.find(their.name);
    if (found == found_.end()) {
      say(directory_, their.name,
          fmt::format("missing; the model described by {} needs it for {}", config_file,
                      parameter.name));
      return false;
    }
    const auto& [file, entry] = found->second;
    const std::string& path = model_.files[static_cast<std::size_t>(file)];
    std::vector<std::int64_t> stored = their.shape;
    if (their.transposed)
      std::ranges::reverse(stored);
    const auto type = value_named<StoredType>(entry.dtype);
    if (entry.shape != stored) {
      say(path, entry.name,
          fmt::format("its shape is {}, but the model described by {} needs {}",
                      shape_text(entry.shape), config_file, shape_text(stored)));
    } else if (!type) {
      say(path, entry.name,
          fmt::format("its dtype is {}; supported are F32, BF16 and F16", entry.dtype));
    } else if (!tensor.extents.empty() && *type != tensor.type) {
      say(path, entry.name,
          fmt::format(
              "its dtype is {}, but that of {}, which belongs to the same parameter {}, is {}",
              entry.dtype, tensor.name, parameter.name, word(tensor.type)));
    } else {
      if (tensor.extents.empty())
        tensor.name = entry.name;
      tensor.type = *type;
      tensor.transposed = their.transposed;
      add_extents(file, entry.begin, their, tensor);
      return true;
    }
    return false;
  }

  /// Adds extents in our order: one, or one per row whose place differs from ours.
  static void add_extents(std::int64_t file,
                          std::int64_t offset,
                          const TheirTensor& their,
                          StoredTensor& tensor) {
    const bool ours = their.head_rows == HeadRows::ours;
    const std::int64_t rows = ours ? 1 : their.shape.at(0), count = their.elements() / rows;
    const auto bytes = count * static_cast<std::int64_t>(size_bytes(tensor.type));
    std::vector<std::int64_t> places(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i)
      places[static_cast<std::size_t>(their.our_row(i))] = offset + i * bytes;
    for (std::int64_t i = 0; i < rows; ++i)
      tensor.extents.push_back(
          {file, places[static_cast<std::size_t>(i)], their.begin + i * count, count});
  }

  /// Reports tensors that do not belong to the model.
  void refuse_rest() {
    for (const auto& found : found_) {
      const std::string& name = found.first;
      const auto is_name = [&](std::string_view buffer) { return matches(buffer, name); };
      if (used_.contains(name) || (model_.shape.tied_head && name == head_name) ||
          std::ranges::any_of(family_.buffers, is_name))
        continue;
      say(model_.files[static_cast<std::size_t>(found.second.file)], found.second.entry.name,
          fmt::format("unexpected tensor: the model described by {} does not have it",
                      config_file));
    }
  }

  /// A stored head that is tied to the embedding must have the same bits.
  void compare_tied_head() {
    const auto found = found_.find(head_name);
    if (!model_.shape.tied_head || found == found_.end())
      return;
    const auto& [file, entry] = found->second;
    const StoredTensor& embedding = model_.tensors.front();
    StoredTensor head = embedding;
    head.extents = {{file, entry.begin, 0, embedding.elements()}};
    TensorReader reader(model_);
    if (entry.dtype != word(embedding.type) ||
        entry.end - entry.begin != bytes_of(embedding.type, embedding.elements()) ||
        reader.hash(head, head.elements()) != reader.hash(embedding, embedding.elements()))
      say(model_.files[static_cast<std::size_t>(file)], entry.name,
          fmt::format("it differs from {}, although {} ties the two (tie_word_embeddings)",
                      embedding.name, config_file));
  }

  /// Biases in the file of a model without biases must be zero.
  void drop_biases() {
    const auto table = model::parameter_table(model_.shape);
    TensorReader reader(model_);
    std::vector<StoredTensor> kept;
    for (const StoredTensor& tensor : model_.tensors) {
      if (std::ranges::find(table, tensor.parameter, &layout::Parameter::name) != table.end()) {
        kept.push_back(tensor);
        continue;
      }
      bool zero = true;
      reader.each_block(
          tensor, tensor.elements(), [&](std::int64_t, std::span<const float> values) {
            zero = zero && std::ranges::all_of(values, [](float value) { return value == 0; });
          });
      if (!zero)
        say(model_.files[static_cast<std::size_t>(tensor.extents.front().file)], tensor.name,
            fmt::format("it is not zero, but the model described by {} has no biases",
                        config_file));
    }
    model_.tensors = std::move(kept);
  }

  const std::string directory_;
  const Family& family_;
  StoredModel& model_;
  std::map<std::string, Found> found_;           // without the prefix
  std::map<std::string, std::uint64_t> hashes_;  // by our parameter
  std::set<std::string> used_;
  Findings findings_;
};

}  // namespace

bool is_huggingface(const std::string& directory) {
  return fs::exists(directory + "/" + config_file) || fs::exists(directory + "/" + one_file) ||
         fs::exists(directory + "/" + index_file);
}

StoredModel open_huggingface(const std::string& directory) {
  const std::string config = directory + "/" + config_file;
  if (!fs::exists(config))
    throw UserError({directory}, "config.json is missing, which contains the model's sizes");
  if (!fs::exists(directory + "/" + one_file) && !fs::exists(directory + "/" + index_file))
    throw UserError(
        {directory},
        fmt::format("neither {} nor {} exists{}", one_file, index_file,
                    fs::exists(directory + "/pytorch_model.bin")
                        ? ". pytorch_model.bin is a pickle, which trireme does not read. Save the "
                          "model again with save_pretrained() of transformers."
                        : ""));
  StoredModel model{.path = directory, .format = "huggingface", .shape_file = config};
  ConfigContent content = read_config(text::read_bounded(config));
  if (const std::string more = directory + "/" + generation_file; fs::exists(more))
    read_generation_config(text::read_bounded(more), content);
  model.shape = content.shape;
  model.roles = content.roles;
  model.notes = std::move(content.notes);
  Folder(directory, family_of(model.shape), model).read();
  return model;
}

}  // namespace trireme::weights
