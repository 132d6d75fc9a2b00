// SPDX-License-Identifier: Apache-2.0
// Imports weights without training: writes a run directory with a checkpoint of step 0, which has
// only weights. Sampling, export and training continue from it as from any other checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"

#include "record/run/name_values.hpp"
#include "weights/initial_weights.hpp"

namespace trireme::weights {

struct ImportRequest {
  std::string source;  ///< a path as for open_model()
  std::string output;  ///< a new run directory
  /// Used instead of the tokenizer next to the weights; null: use that one.
  std::shared_ptr<const text::Tokenizer> tokenizer;
  bool without_tokenizer = false;  ///< the model will not process text
  std::uint64_t seed = 0;          ///< run.seed of the run that continues
  record::NameValues build;        ///< versions, for the checkpoint
};

struct Imported {
  Origin origin;
  model::GptShape shape;
  std::int64_t parameters = 0, bytes = 0;
  std::vector<std::string> notes;  ///< remarks for the user, one line each
};

/// Collective. Every rank reads and writes its part. Throws UserError, StorageError.
Imported import_model(const ImportRequest& request, comm::World& world);

}  // namespace trireme::weights
