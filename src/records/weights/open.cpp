// SPDX-License-Identifier: Apache-2.0
#include "weights/open.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "comm/control/together.hpp"

#include "text/vocabulary.hpp"
#include "text/write.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/manifest.hpp"
#include "weights/checkpoint_weights.hpp"
#include "weights/huggingface.hpp"
#include "weights/llmc.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {
namespace {

namespace fs = std::filesystem;

/// Files that may contain the tokenizer of a model's folder; the first that exists is read.
constexpr const char* tokenizer_files[] = {"tokenizer.json", "vocab.json", "tokenizer.model",
                                           "gpt2_tokenizer.bin"};

/// A byte tokenizer is exported as 256 tokens without merges; recognizes it again.
std::string bytes_recognized(const std::string& serialized) {
  std::string bytes = text::byte_tokenizer()->serialized();
  if (serialized == bytes)
    return bytes;
  const text::Vocabulary vocabulary = text::vocabulary_from(serialized);
  return vocabulary.merges.empty() && vocabulary.rule == text::MergeRule::listed &&
                 vocabulary.tokens == text::listed_vocabulary(bytes).tokens
             ? bytes
             : serialized;
}

void read_tokenizer_next_to_weights(StoredModel& model) {
  for (const char* name : tokenizer_files)
    if (const auto path = fs::path(model.shape_file).parent_path() / name; fs::exists(path)) {
      model.tokenizer = bytes_recognized(text::load_tokenizer(path)->serialized());
      model.tokenizer_place = path.string();
      return;
    }
}

StoredModel open_file(const std::string& path) {
  if (fs::is_regular_file(path) && is_llmc(path))
    return open_llmc(path);
  if (path.ends_with(".safetensors"))
    throw UserError({path}, "name the folder of this file, which must also contain config.json");
  throw UserError({path}, "neither a folder with weights nor a model file of llm.c");
}

StoredModel open_directory(const std::string& path) {
  if (fs::exists(path + "/" + record::manifest_file))
    return open_checkpoint(path);
  if (const std::string place = place_of_model(path, -1); place != path)
    return open_checkpoint(place);
  if (is_huggingface(path))
    return open_huggingface(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file() && entry.path().extension() == ".bin" &&
        is_llmc(entry.path().string()))
      files.push_back(entry.path());
  std::ranges::sort(files);
  if (files.size() == 1)
    return open_llmc(files.front().string());
  if (files.size() > 1)
    throw UserError(
        {path},
        fmt::format(
            "this folder contains {} model files of llm.c, such as {} and {}. Name one of them.",
            files.size(), files[0].filename().string(), files[1].filename().string()));
  if (record::step_of(fs::path(path).filename().string()) >= 0)
    return open_checkpoint(path);  // its error message says what is missing
  throw UserError({path},
                  "no weights in this directory: neither config.json with model.safetensors, nor a "
                  "model file of llm.c, nor checkpoints of trireme");
}

}  // namespace

StoredModel open_model(const std::string& path, bool with_tokenizer) {
  try {
    if (!fs::exists(path))
      throw UserError({path}, "no such file or directory");
    StoredModel model = fs::is_directory(path) ? open_directory(path) : open_file(path);
    if (with_tokenizer && model.format != "checkpoint")
      read_tokenizer_next_to_weights(model);
    return model;
  } catch (const fs::filesystem_error& error) {
    throw StorageError("file system", "look at " + path, error.code().message());
  }
}

std::string place_of_model(const std::string& path, std::int64_t step) {
  std::error_code ignored;  // open_model() will report it
  const bool is_run = !fs::exists(path + "/" + record::manifest_file, ignored) &&
                      fs::is_directory(path + "/checkpoints", ignored);
  if (step >= 0 && !is_run && fs::exists(path, ignored))
    throw UserError({path},
                    "--step chooses one of the checkpoints of a run directory, and this has none. "
                    "Leave it out");
  return is_run ? checkpoint_in(path, step) : path;
}

bool was_removed(const std::string& place, const std::string& path, int tries) {
  std::error_code ignored;
  if (place == path || fs::exists(place, ignored))
    return false;
  if (tries < 3)
    return true;
  throw StorageError("checkpoints", "read " + place,
                     "the active run removed it while it was being read, for the third time. "
                     "Repeat the command, or let the run keep more checkpoints (checkpoint.keep).");
}

void read_from(const std::string& path,
               std::int64_t step,
               comm::World& world,
               const std::function<void(const std::string& place)>& read) {
  for (int tries = 1;; ++tries) {
    const std::string place =
        comm::from_first_rank(world, [&] { return place_of_model(path, step); });
    const auto expect_removed = [&] {  // rethrows every other error
      if (!comm::from_first_rank(world, [&] { return was_removed(place, path, tries); }))
        throw;
    };
    try {
      return read(place);
    } catch (const UserError&) {
      expect_removed();
    } catch (const EnvironmentError& problem) {
      if (!problem.known_to_all())
        throw;
      expect_removed();
    }
  }
}

Roles roles_of(const StoredModel& model) {
  Roles roles = model.roles;
  if (const auto tokenizer = tokenizer_of(model)) {
    if (!roles.begin)
      roles.begin =
          tokenizer->begin_of_text() ? tokenizer->begin_of_text() : tokenizer->end_of_text();
    if (roles.ends.empty())
      roles.ends = tokenizer->ends_of_text();
  }
  return roles;
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const StoredModel& model) {
  return model.tokenizer.empty() ? nullptr : text::tokenizer_from(model.tokenizer);
}

LoadedParameters load_parameters(const StoredModel& model,
                                 device::Device& device,
                                 device::Stream& stream) {
  LoadedParameters loaded;
  TensorReader reader(model);
  std::vector<float> host;
  const bool direct = device.kind() == device::Kind::cpu;
  for (const StoredTensor& tensor : model.tensors) {
    const std::int64_t elements = tensor.elements();
    loaded.memory.push_back(
        device.allocate(static_cast<std::size_t>(elements) * sizeof(float), tensor.parameter));
    const View there = loaded.memory.back().view(DType::f32, 0, elements);
    if (!direct)
      host.resize(static_cast<std::size_t>(elements));
    const View here = direct ? there : view_of(host.data(), elements);
    reader.read(tensor, 0, here);
    if (tensor.content_hash)
      model.expect_hash(tensor, hash_elements(here, 0));
    if (!direct) {
      device.copy(there, here, stream);
      stream.synchronize();
    }
    loaded.views.emplace_back(there);
  }
  return loaded;
}

bool Roles::within(std::int64_t tokens) const {
  return begin.value_or(0) < tokens && padding.value_or(0) < tokens &&
         std::ranges::all_of(ends, [&](std::int32_t id) { return id < tokens; });
}

void StoredModel::expect_hash(const StoredTensor& tensor, std::uint64_t hash) const {
  if (tensor.content_hash && hash != *tensor.content_hash)
    throw UserError({path}, fmt::format("the {} is damaged: {} does not match its content hash",
                                        format == "checkpoint" ? format : "model", tensor.name));
}

}  // namespace trireme::weights
