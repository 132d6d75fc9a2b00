// SPDX-License-Identifier: Apache-2.0
// The one door to weights in files. A path may be
//
//   a folder of Hugging Face's transformers       config.json and *.safetensors
//   a model file of llm.c                         *.bin, or a folder with one of them
//   a run directory of trireme                    its newest checkpoint
//   a checkpoint of trireme                       .../checkpoints/step-N
//
// and what it is follows from what lies there. Headers are read, weights are not.
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

/// With the tokenizer that lies beside the weights, or in the checkpoint; `tokenizer` stays ""
/// where there is none. Throws UserError with all that is wrong, each finding with its file;
/// StorageError.
/// Without `with_tokenizer` the one beside the weights is not looked at.
StoredModel open_model(const std::string& path, bool with_tokenizer = true);

/// Where open_model() finds it: for a run directory the newest checkpoint, or that of `step` where
/// it is not -1, else `path` itself. Throws UserError when there is no such checkpoint.
std::string place_of_model(const std::string& path, std::int64_t step);

/// After reading from `place`, which place_of_model() gave for `path`, has failed: true when a run
/// removed that checkpoint meanwhile, so that place_of_model() is to be asked again. Throws
/// StorageError after the third such try.
bool was_removed(const std::string& place, const std::string& path, int tries);

/// Collective. Calls `read` with place_of_model(path, step), and again with the newest checkpoint
/// when a run removed that one meanwhile.
void read_from(const std::string& path,
               std::int64_t step,
               comm::World& world,
               const std::function<void(const std::string& place)>& read);

/// Null where the model came without one.
std::shared_ptr<const text::Tokenizer> tokenizer_of(const StoredModel& model);

/// Parameters in registration order, fp32, in memory of `device`: what model::Gpt::bind() takes.
struct LoadedParameters {
  std::vector<device::Buffer> memory;
  std::vector<ConstView> views;
};
/// Every parameter, whole; for one process. Throws UserError where a checkpoint does not match its
/// hashes; StorageError.
LoadedParameters load_parameters(const StoredModel& model,
                                 device::Device& device,
                                 device::Stream& stream);

}  // namespace trireme::weights
