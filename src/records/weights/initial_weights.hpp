// SPDX-License-Identifier: Apache-2.0
// Reads the initial weights of a run from files, on all ranks.
//
//     auto stored = open_together(path, true, world, check);        // collective
//     InitialWeights initial(std::move(stored), shape, seed, world);  // collective
//     for (each range that this rank owns) initial.read(parameter, begin, values);
//     const Origin origin = initial.settle(hashes);            // collective
//
// 1. Rank 0 opens the files and broadcasts where each tensor is stored. Each rank reads only the
//    bytes of the elements that it owns. So the values depend neither on the number of ranks nor on
//    the transport.
// 2. An element that is not finite is an error, reported with its tensor and file.
// 3. Rows that are added (InitialRows) are a function of the files and the seed.
// 4. The weights of a checkpoint are compared with its content hashes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "layout/plan.hpp"

#include "model/layers.hpp"

#include "comm/control/world.hpp"

#include "record/run/name_values.hpp"
#include "weights/fit.hpp"
#include "weights/stored_model.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {

struct Origin {
  std::string path, format;
  std::uint64_t hash = 0;  ///< weights_hash() at the start of the run
  Roles roles = {};

  /// The facts for a checkpoint and the record (checkpoint_weights.hpp).
  [[nodiscard]] record::NameValues facts() const;
};

/// Collective. Calls open_model() and `check` on rank 0, and gives the model, or throws the error,
/// on all ranks. `check` throws if the model does not match the deck.
StoredModel open_together(const std::string& path,
                          bool with_tokenizer,
                          comm::World& world,
                          const std::function<void(const StoredModel&)>& check);

class InitialWeights {
 public:
  /// Collective. Requires: find_differences() found none for a model of `shape`.
  InitialWeights(StoredModel stored,
                 const model::GptShape& shape,
                 std::uint64_t seed,
                 comm::World& world);

  /// Reads elements [begin, begin + values.elements) of a parameter of the deck's model into fp32
  /// host memory. Throws UserError, StorageError.
  void read(ParameterIndex parameter, std::int64_t begin, View values);

  /// Collective. `hashes` contains, for each parameter, the sum of element_hash over this rank's
  /// part; every element must be in the part of exactly one rank. Throws UserError if the weights
  /// of a checkpoint do not match.
  Origin settle(std::span<const std::uint64_t> hashes);

  [[nodiscard]] const StoredModel& stored() const { return stored_; }
  /// Messages about keys without effect and rows that were added or left out, one line each.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  const StoredModel stored_;
  const model::Layers layers_;
  const std::uint64_t seed_;
  comm::World& world_;
  const std::vector<layout::Parameter>& table_;  // of layers_
  TensorReader reader_;
  std::map<std::size_t, std::vector<float>> added_;  // by parameter: the values of each new row
};

/// Hash of the names, shapes and content hashes of a model's parameters.
std::uint64_t weights_hash(std::span<const layout::Parameter> table,
                           std::span<const std::uint64_t> content_hashes);

}  // namespace trireme::weights
