// SPDX-License-Identifier: Apache-2.0
// Loads a trained model for `trireme sample` and `trireme evaluate`: its parameters in fp32 on this
// rank's CPU, and its tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "device/device.hpp"

#include "model/config.hpp"

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"

#include "weights/open.hpp"
#include "weights/stored_model.hpp"

namespace trireme::inference {

struct ModelSource {
  std::string path;                  ///< what weights::open_model() reads, or a run directory
  std::optional<std::int64_t> step;  ///< of a checkpoint in a run directory; none: the newest
};

struct LoadedModel {
  weights::StoredModel stored;
  /// Null if the run had token files without a tokenizer, or if none is next to the weights.
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  weights::LoadedParameters parameters;

  [[nodiscard]] const model::GptShape& shape() const { return stored.shape; }
  [[nodiscard]] bool from_checkpoint() const { return stored.format == "checkpoint"; }
  [[nodiscard]] std::string title() const;
  /// Throws UserError if there is none, or if it has tokens outside the model's vocabulary.
  [[nodiscard]] const text::Tokenizer& known_tokenizer() const;
};

/// Collective. The first rank examines the files, and every rank reads them. Sets the number of
/// OpenMP's threads to this rank's share of the CPUs. Throws UserError if there is no such model or
/// it is damaged.
LoadedModel load_model(const ModelSource& source, comm::World& world, Log& log);

}  // namespace trireme::inference
