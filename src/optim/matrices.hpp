// SPDX-License-Identifier: Apache-2.0
// The hidden matrices of Muon: which parameters have them, on which rank each matrix is
// orthogonalized, and the orthogonalization of all of them in a step.
//
// 1. A hidden matrix is one of layout::Parameter::matrices: the weights of linear layers. The
//    weights of queries, keys and values are separate matrices.
// 2. With shards on several ranks, each parameter with hidden matrices has a home rank
//    (layout/ownership.hpp, balanced by FLOP). Rule::prepare() has written the directions over the
//    gradient shards. Each rank sends its pieces to their homes; the homes orthogonalize the whole
//    matrices and send the pieces back into the same memory, so each piece crosses the network once
//    in each direction. Each replica has its own homes, and replicas exchange nothing. Transfers
//    and products do not overlap. Between the transfer to the homes and the products, the optimizer
//    updates the buckets that need no matrix, and their gathers overlap with the products
//    (optimizer.hpp).
// 3. Otherwise every rank owns whole gradients and orthogonalizes all matrices in place.
// 4. A matrix is always whole when it is orthogonalized, and the operations' bits do not depend on
//    the number of threads. So results have the same bits on any number of ranks, over any
//    transport, sharded or not.
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

/// Memory, FLOP and bytes sent for the matrices of a step. Pure arithmetic, the same on every rank.
struct MatrixWork {
  layout::Ownership homes;
  bool travels = false;            ///< sharded, on several ranks
  std::int64_t matrices = 0;       ///< in the model
  std::int64_t held_elements = 0;  ///< fp32, allocated on each rank for whole matrices
  std::int64_t scratch_bytes = 0;  ///< of each rank
  double flops = 0;                ///< of all matrices, once
  double busiest_flops = 0;        ///< of the rank with the most work
  std::int64_t sent_bytes = 0;     ///< in both directions, by the rank that sends most

  [[nodiscard]] std::int64_t bytes() const;
};

/// Nothing for optimizers that need no whole matrices.
std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded);

/// Bytes of matrices sent to other hosts in a step, in both directions, by the host that sends
/// most.
std::int64_t matrix_bytes_between(const comm::Hosts& hosts,
                                  const layout::Plan& plan,
                                  const MatrixWork& work);

class Matrices {
 public:
  /// Collective. The engine, the world, the communicator and the device outlive it.
  Matrices(const OptimizerConfig& config,
           MatrixWork work,
           reduce::Engine& engine,
           comm::World& world,
           comm::Communicator& communicator,
           device::Device& device);

  [[nodiscard]] bool has(ParameterIndex parameter) const {
    return work_.homes.home(parameter) >= 0;
  }
  /// Sends the contents of the owned gradients of these parameters to their homes. Collective.
  void bring_home(device::Stream& stream);
  /// Orthogonalizes the matrices at their homes and writes the results over the owned gradients.
  /// Collective. Requires: bring_home() was called in the same step.
  void orthogonalize(device::Stream& stream);
  [[nodiscard]] std::size_t bytes() const { return held_.bytes() + scratch_.bytes(); }

 private:
  struct Matrix {
    View at;
    const ops::Orthogonalize* how = nullptr;
    float scale = 1;
  };
  /// A piece whose home is this rank, so it is copied and not sent.
  struct Stay {
    View gradient, held;
  };

  void add_matrices(const layout::Parameter& parameter, View at, device::Device& device);
  void find_pieces(const layout::Plan& plan,
                   comm::World& world,
                   comm::Communicator& communicator,
                   device::Device& device);

  const OptimizerConfig config_;
  const MatrixWork work_;
  reduce::Engine& engine_;
  device::Buffer held_, scratch_;
  std::map<std::pair<std::int64_t, std::int64_t>, ops::Orthogonalize> by_shape_;
  std::vector<Matrix> matrices_;  // orthogonalized by this rank
  std::vector<Stay> stays_;
  std::unique_ptr<comm::RoundTrip> trip_;  // null where nothing is sent
};

}  // namespace trireme::optim
