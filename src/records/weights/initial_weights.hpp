// SPDX-License-Identifier: Apache-2.0
// First weights of a run out of files, on all ranks.
//
//     auto stored = open_together(path, true, world, check);        // collective
//     InitialWeights initial(std::move(stored), shape, seed, world);  // collective
//     for (each piece that this rank keeps) initial.read(parameter, begin, values);
//     const Origin origin = initial.settle(hashes);            // collective
//
// 1. The first rank opens the files and broadcasts where everything lies; each rank reads the
//    bytes of the elements that it keeps, and no others. So the values do not depend on the number
//    of ranks, nor on how they talk.
// 2. An element that is not finite is refused, with its tensor and file.
// 3. Where rows are added or left out, what is added is a function of the files and the seed
//    (InitialRows).
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
#include "weights/tensor_reader.hpp"

namespace trireme::weights {

/// Where first weights came from.
struct Origin {
  std::string path, format;
  /// Of the values that the run began with, by parameter: the hash of their content hashes.
  std::uint64_t hash = 0;

  /// As a checkpoint and the record state it (checkpoint_weights.hpp).
  [[nodiscard]] record::NameValues facts() const;
};

/// Collective. open_model(), and `check`, which throws what does not fit, on the first rank; what
/// it found on all.
StoredModel open_together(const std::string& path,
                          bool with_tokenizer,
                          comm::World& world,
                          const std::function<void(const StoredModel&)>& check);

class InitialWeights {
 public:
  /// Collective. For a model of `shape`, which misfits() found nothing wrong with.
  InitialWeights(StoredModel stored,
                 const model::GptShape& shape,
                 std::uint64_t seed,
                 comm::World& world);

  /// Elements [begin, begin + values.elements) of a parameter of the wanted model, into fp32 memory
  /// of the host. Throws UserError, StorageError.
  void read(ParameterIndex parameter, std::int64_t begin, View values);

  /// Collective. `hashes`: by parameter, the sum of element_hash over this rank's part, where every
  /// element is in one rank's part. Throws UserError where a checkpoint's weights do not match.
  Origin settle(std::span<const std::uint64_t> hashes);

  [[nodiscard]] const StoredModel& stored() const { return stored_; }
  /// What was added or left out, one line each, for people.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  void find_added_rows();
  void check_whole(const StoredTensor& tensor);

  const StoredModel stored_;
  const model::Layers layers_;
  const std::uint64_t seed_;
  comm::World& world_;
  const std::vector<layout::Parameter>& table_;  // of layers_
  TensorReader reader_;
  std::map<std::size_t, std::vector<float>> added_;  // by parameter: what each new row is
};

/// The hash of a model's weights: of its parameters' names, shapes and content hashes.
std::uint64_t weights_hash(std::span<const layout::Parameter> table,
                           std::span<const std::uint64_t> content_hashes);

}  // namespace trireme::weights
