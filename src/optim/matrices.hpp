// SPDX-License-Identifier: Apache-2.0
// The hidden matrices of Muon: which they are, on which rank each one is orthogonalized, and the
// orthogonalization of all of them in a step.
//
// 1. A hidden matrix is one of layout::Parameter::matrices: weights of linear layers, those of
// queries, keys and values apart from one another.
// 2. Sharded on several ranks, each parameter with such matrices has a home (layout/ownership.hpp,
// balanced by FLOP). The ranks' pieces travel there from the gradient shards, in whose place the
// rule has left its directions, are orthogonalized, and travel back into the same places: each
// piece crosses the network once in each direction. Each replica has homes of its own, and nothing
// travels between replicas. Travel and products do not overlap with one
// another; between the way there and the products the optimizer updates what needs no matrix, so
// that its gathers run beside the products (optimizer.hpp).
// 3. Otherwise every rank owns whole gradients: there it orthogonalizes all matrices, in place.
// 4. A matrix is always whole where it is orthogonalized, by operations whose bits do not depend on
// threads; so results have the same bits on any number of ranks, over any transport, sharded or
// not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/ownership.hpp"
#include "layout/plan.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/collective/round_trip.hpp"
#include "comm/control/world.hpp"
#include "ops/optimizer/orthogonalize.hpp"

#include "reduce/engine.hpp"

#include "optim/config.hpp"

namespace trireme::optim {

/// What a step's matrices take; pure arithmetic, the same on every rank and for any rank count.
struct MatrixWork {
  layout::Ownership homes;
  bool travels = false;               ///< sharded, on several ranks
  std::int64_t matrices = 0;          ///< in the model
  std::int64_t held_elements = 0;     ///< fp32, that each rank has room for as a home
  std::int64_t scratch_elements = 0;  ///< fp32, of each rank
  double flops = 0;                   ///< of all matrices, once
  double busiest_flops = 0;           ///< of the rank that has most to do
  std::int64_t sent_bytes = 0;        ///< there and back, by the rank that sends most

  [[nodiscard]] std::int64_t bytes() const;
};

/// Nothing for kinds that need no whole matrices.
std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded);

/// What matrices send to other hosts in a step, there and back, by the host that sends most.
std::int64_t matrix_bytes_between(const comm::Hosts& hosts,
                                  const layout::Plan& plan,
                                  const MatrixWork& work);

class Matrices {
 public:
  /// Collective. The engine, the world and the device outlive it.
  Matrices(const OptimizerConfig& config,
           MatrixWork work,
           reduce::Engine& engine,
           comm::World& world,
           device::Device& device);

  [[nodiscard]] bool has(ParameterIndex parameter) const {
    return work_.homes.home(parameter) >= 0;
  }
  /// Brings what lies in the owned gradients of these parameters to their homes. Collective.
  void bring_home(device::Stream& stream);
  /// And replaces it. Collective. Requires: bring_home() in the same step.
  void orthogonalize(device::Stream& stream);
  [[nodiscard]] std::size_t bytes() const { return held_.bytes() + scratch_.bytes(); }

 private:
  struct Matrix {
    View at;
    const ops::Orthogonalize* how = nullptr;
    float scale = 1;
  };
  /// A piece whose home is the rank where it lies.
  struct Stay {
    View gradient, held;
  };

  void add_matrices(const layout::Parameter& parameter, View at, device::Device& device);
  void find_pieces(const layout::Plan& plan, comm::World& world, device::Device& device);

  const OptimizerConfig config_;
  const MatrixWork work_;
  reduce::Engine& engine_;
  device::Buffer held_, scratch_;
  std::map<std::pair<std::int64_t, std::int64_t>, ops::Orthogonalize> by_shape_;
  std::vector<Matrix> matrices_;  // that this rank orthogonalizes
  std::vector<Stay> stays_;
  std::unique_ptr<comm::RoundTrip> trip_;  // none where nothing travels
};

}  // namespace trireme::optim
