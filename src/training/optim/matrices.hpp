// SPDX-License-Identifier: Apache-2.0
// Orthogonalizes the hidden matrices of Muon in a step: sends them to their owners, orthogonalizes
// them and sends them back, round by round (docs/design/training.md, "Muon").
//
// 1. The hidden matrices are those of layout::Parameter::matrices: the weights of linear layers.
//    The weights of queries, keys and values are separate matrices.
// 2. With shards on several ranks, Rule::prepare() has written the directions over the gradient
//    shards. The owners (layout/ownership.hpp) send the orthogonalized pieces back into the same
//    memory. Each replica has its own owners, and replicas exchange nothing. Otherwise every rank
//    owns whole gradients and orthogonalizes all matrices in place.
// 3. A round is the matrices of one bucket. Rounds are in the order in which buckets are updated,
//    the last bucket of the layout first. Its pieces are one transfer of the engine
//    (reduce/transfers.hpp), on the communication stream, in the same order on all ranks.
// 4. To update a bucket a rank waits until the pieces of the round were sent back. It does so when
//    the rank with the most work in the rounds so far should have finished them; until then a rank
//    with less work continues with later rounds (rounds_before_updates()). So no rank waits for
//    another while it has products left, if all compute at the same speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/ownership.hpp"
#include "layout/plan.hpp"

#include "ops/optimizer/orthogonalize.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/collective/transfer.hpp"
#include "comm/control/world.hpp"
#include "reduce/engine.hpp"

#include "optim/config.hpp"

namespace trireme::optim {

struct MatrixRound {
  BucketIndex bucket{};
  std::vector<double> flops;  ///< by owner
};

/// Memory, FLOP and bytes sent for the matrices of a step: arithmetic, the same on every rank.
struct MatrixWork {
  layout::Ownership owners;
  std::vector<MatrixRound> rounds{};
  bool distributed = false;         ///< sharded, on several ranks
  std::int64_t matrices = 0;        ///< in the model
  std::int64_t owned_elements = 0;  ///< fp32, allocated on each rank for the matrices that it owns
  std::int64_t scratch_bytes = 0;   ///< of each rank
  double flops = 0;                 ///< of all matrices, once
  double busiest_flops = 0;         ///< of the rank with the most work
  std::int64_t sent_bytes = 0;      ///< in both directions; maximum over the ranks

  [[nodiscard]] std::int64_t bytes() const;
};

/// None for optimizers that need no whole matrices.
std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded);

/// Bytes of matrices that a host sends to other hosts in an update with sharded state, in both
/// directions; maximum over the hosts.
std::int64_t matrix_bytes_between(const comm::Hosts& hosts,
                                  const layout::Plan& plan,
                                  const OptimizerConfig& config);

/// For each round the last round that `rank` orthogonalizes before it waits for that round's
/// pieces: the next one, or a later one that it reaches before the busiest rank has finished that
/// round.
std::vector<std::size_t> rounds_before_updates(std::span<const MatrixRound> rounds, int rank);

class Matrices final : private reduce::TransferSender {
 public:
  /// Collective. The engine, the world, the communicator and the device must outlive it.
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
    return work_.owners.owner(parameter) >= 0;
  }
  [[nodiscard]] std::size_t num_rounds() const { return rounds_.size(); }
  /// The round of this bucket's matrices, if it has any.
  [[nodiscard]] std::optional<std::size_t> round_of(BucketIndex bucket) const;

  /// Sends the owned gradients of a round to their owners. Call for all rounds in their order
  /// before any finish(), each after its directions were enqueued. Collective.
  void send(std::size_t round);
  /// Collective. Call before the update of the round's bucket, for all rounds in order: enqueues
  /// all work after which its matrices are orthogonal in the memory of the owned gradients.
  void finish(std::size_t round, device::Stream& stream);
  [[nodiscard]] std::size_t bytes() const { return owned_.bytes() + scratch_.bytes(); }

 private:
  struct Matrix {
    View at;
    const ops::Orthogonalize* orthogonalize = nullptr;
    float scale = 1;
  };
  /// A piece whose owner is this rank, so it is copied and not sent.
  struct LocalCopy {
    View gradient, matrix;
  };
  struct Round {
    BucketIndex bucket{};
    std::vector<Matrix> matrices;  // orthogonalized by this rank
    std::vector<LocalCopy> local_copies;
    std::size_t products = 0;  // last round to orthogonalize before compute waits for this one
  };

  void enqueue(BucketIndex bucket, reduce::Direction direction, device::Stream& stream) override;
  void add_matrices(Round& round,
                    const layout::Parameter& parameter,
                    View at,
                    device::Device& device);
  /// By parameter: the memory in which this rank orthogonalizes it, if it does.
  [[nodiscard]] std::vector<View> owned_views() const;
  comm::MessageGroup find_messages(Round& round, const std::vector<View>& owned);
  void orthogonalize_through(std::size_t round, device::Stream& stream);

  const OptimizerConfig config_;
  const MatrixWork work_;
  reduce::Engine& engine_;
  device::Buffer owned_, scratch_;
  std::map<std::pair<std::int64_t, std::int64_t>, ops::Orthogonalize> by_shape_;
  std::vector<Round> rounds_;
  std::unique_ptr<comm::Transfer> transfer_;  // one group per round; null if nothing is sent
  std::size_t num_orthogonalized_ = 0, num_returning_ = 0;  // rounds, in this step
};

}  // namespace trireme::optim
