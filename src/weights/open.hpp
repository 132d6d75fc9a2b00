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
#include <memory>
#include <string>
#include <vector>

#include "base/view.hpp"

#include "device/buffer.hpp"
#include "device/device.hpp"

#include "text/tokenizer.hpp"
#include "weights/stored_model.hpp"

namespace trireme::weights {

/// With the tokenizer that lies beside the weights, or in the checkpoint; `tokenizer` stays ""
/// where there is none. Throws UserError with all that is wrong, each finding with its file;
/// StorageError.
/// Without `with_tokenizer` the one beside the weights is not looked at.
StoredModel open_model(const std::string& path, bool with_tokenizer = true);

/// As open_model(), of the checkpoint of `step` where that is not -1.
StoredModel open_model_of(const std::string& path, std::int64_t step);

/// Null where the model came without one. A checkpoint from before tokenizers were kept means
/// bytes.
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
