// SPDX-License-Identifier: Apache-2.0
// Opens weights in any supported format. A path may be
//
//   a folder of Hugging Face's transformers       config.json and *.safetensors
//   a model file of llm.c                         *.bin, or a folder with one of them
//   a run directory of trireme                    its newest checkpoint
//   a checkpoint of trireme                       .../checkpoints/step-N
//
// and its content decides which. Only headers are read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/view.hpp"
#include "device/buffer.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Opens the model with the tokenizer next to the weights or in the checkpoint; `tokenizer` is ""
/// if there is none. Throws UserError with all errors, each with its file; StorageError.
/// Without `with_tokenizer`, a tokenizer next to the weights is not read.
StoredModel open_model(const std::string& path, bool with_tokenizer = true);

/// The path that open_model() reads: in a run directory the checkpoint of `step`, or the newest
/// (-1); else `path`. Throws UserError if there is no such checkpoint.
std::string place_of_model(const std::string& path, std::int64_t step);

/// Called after a failure to read from `place`, the result of place_of_model() for `path`. Returns
/// true if a run removed that checkpoint in the meantime, so that the caller should call
/// place_of_model() again. Throws StorageError after the third such attempt.
bool was_removed(const std::string& place, const std::string& path, int tries);

/// Collective. Calls `read` with place_of_model(path, step), and again with the newest checkpoint
/// if a run removed the first one in the meantime.
void read_from(const std::string& path,
               std::int64_t step,
               comm::World& world,
               const std::function<void(const std::string& place)>& read);

/// Roles in the model's files; roles that these do not state come from the tokenizer.
Roles roles_of(const StoredModel& model);

/// Null if the model has no tokenizer.
std::shared_ptr<const text::Tokenizer> tokenizer_of(const StoredModel& model);

/// Parameters in registration order, fp32, in memory of `device`, as model::Gpt::bind() needs them.
struct LoadedParameters {
  std::vector<device::Buffer> memory;
  std::vector<ConstView> views;
};
/// Loads all parameters in one process. Throws UserError if hashes do not match; StorageError.
LoadedParameters load_parameters(const StoredModel& model,
                                 device::Device& device,
                                 device::Stream& stream);

}  // namespace trireme::weights
