// SPDX-License-Identifier: Apache-2.0
// The hidden matrices of Muon in a step: they are brought together, orthogonalized and taken back,
// round by round (matrix_work.hpp).
//
// 1. A hidden matrix is one of layout::Parameter::matrices: the weights of linear layers. The
//    weights of queries, keys and values are separate matrices.
// 2. With shards on several ranks, each parameter with hidden matrices has a home rank
//    (layout/ownership.hpp, balanced by FLOP). Rule::prepare() has written the directions over the
//    gradient shards. Each rank sends its pieces to their homes; the homes orthogonalize the whole
//    matrices and send the pieces back into the same memory, so each piece crosses the network once
//    in each direction. Each replica has its own homes, and replicas exchange nothing.
// 3. The pieces of a bucket travel together, as a transfer of the engine (reduce/transfers.hpp), on
//    the communication stream. All rounds leave first. While one is orthogonalized, later ones
//    arrive; when it is done, its pieces travel back beside the products of the next one, and after
//    these its bucket is updated and gathered. The queue has, of rounds 0, 1, 2, …:
//
//      there 0, there 1, there 2, …; gathers of the buckets before the first round;
//      back 0, back 1, gather 0, back 2, gather 1, …
//
//    A rank's products are in its own order of rounds, ahead of other ranks' where it has less to
//    do in a round (rounds_before_updates()). That changes no order of the queue.
// 4. Otherwise every rank owns whole gradients and orthogonalizes all matrices in place.
// 5. A matrix is always whole when it is orthogonalized, and the operations' bits do not depend on
//    the number of threads. So results have the same bits on any number of ranks, over any
//    transport, sharded or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "ops/optimizer/orthogonalize.hpp"

#include "comm/collective/round_trip.hpp"
#include "comm/control/world.hpp"
#include "reduce/engine.hpp"

#include "optim/config.hpp"
#include "optim/matrix_work.hpp"

namespace trireme::optim {

class Matrices final : private reduce::Carrier {
 public:
  /// Collective. The engine, the world, the communicator and the device outlive it.
  Matrices(const OptimizerConfig& config,
           MatrixWork work,
           reduce::Engine& engine,
           comm::World& world,
           comm::Communicator& communicator,
           device::Device& device);
  ~Matrices() override;
  Matrices(const Matrices&) = delete;
  Matrices& operator=(const Matrices&) = delete;

  [[nodiscard]] bool has(ParameterIndex parameter) const {
    return work_.homes.home(parameter) >= 0;
  }
  [[nodiscard]] std::size_t num_rounds() const { return rounds_.size(); }
  /// The round of this bucket's matrices; none where it has none.
  [[nodiscard]] std::optional<std::size_t> round_of(BucketIndex bucket) const;

  /// Sends the owned gradients of a round to their homes. Call for all rounds in their order before
  /// any bring_back(), each when its directions are enqueued. Collective.
  void send(std::size_t round);
  /// Enqueues what comes before the update of the round's bucket: its matrices are then orthogonal,
  /// in the memory of the owned gradients. Call for all rounds in their order. Collective.
  void bring_back(std::size_t round, device::Stream& stream);
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
  struct Round {
    BucketIndex bucket{};
    std::vector<Matrix> matrices;  // orthogonalized by this rank
    std::vector<Stay> stays;
    std::size_t products = 0;  // the last round that is orthogonalized before this one is awaited
  };

  void carry(BucketIndex bucket, reduce::Way way, device::Stream& stream) override;
  void add_matrices(Round& round,
                    const layout::Parameter& parameter,
                    View at,
                    device::Device& device);
  /// Where this rank orthogonalizes, by parameter; empty where others do, or nobody.
  [[nodiscard]] std::vector<View> held_views() const;
  comm::Passengers find_pieces(Round& round, const std::vector<View>& held);
  void orthogonalize_through(std::size_t round, device::Stream& stream);

  const OptimizerConfig config_;
  const MatrixWork work_;
  reduce::Engine& engine_;
  device::Buffer held_, scratch_;
  std::map<std::pair<std::int64_t, std::int64_t>, ops::Orthogonalize> by_shape_;
  std::vector<Round> rounds_;
  std::unique_ptr<comm::RoundTrip> trip_;  // its groups are the rounds; null where nothing is sent
  std::size_t num_orthogonalized_ = 0, num_returning_ = 0;  // rounds, in this step
};

}  // namespace trireme::optim
