// SPDX-License-Identifier: Apache-2.0
// Weights in, without training: a run directory with a checkpoint of step 0, which sampling, export
// and training go on from as from any other.
//
// A checkpoint of step 0 holds weights alone: the optimizer's state begins at zero, whatever
// optimizer the run gets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"

#include "record/run/name_values.hpp"
#include "weights/initial_weights.hpp"

namespace trireme::weights {

struct ImportRequest {
  std::string source;  ///< what open_model() takes
  std::string output;  ///< a new run directory
  /// Of another place than the model's folder; null: that one's.
  std::shared_ptr<const text::Tokenizer> tokenizer;
  bool without_tokenizer = false;  ///< the model will not be given text
  std::uint64_t seed = 0;          ///< run.seed of the run that goes on from here
  record::NameValues build;        ///< versions, for the checkpoint
};

struct Imported {
  Origin origin;
  model::GptShape shape;
  std::int64_t parameters = 0, bytes = 0;
};

/// Collective; every rank reads and writes its part. Throws UserError, StorageError.
Imported import_model(const ImportRequest& request, comm::World& world);

}  // namespace trireme::weights
