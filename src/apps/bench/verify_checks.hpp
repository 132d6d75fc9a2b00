// SPDX-License-Identifier: Apache-2.0
// The checks of `trireme verify` in a session (see verify.hpp).
//
// A check returns the first error on this rank, or nothing; agree() gives all ranks the first of
// all. CPU only: the host reads and writes the engine's memory between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/view.hpp"

#include "comm/control/world.hpp"

#include "session/session.hpp"

namespace trireme::bench {

using session::Session;
using session::StepOutcome;

struct Finding {
  std::int64_t order = 0;  ///< for sorting: parameter and element, if there are any
  std::string text;

  auto fields() { return std::tie(order, text); }
};

/// Collective. The finding with the smallest order, with its rank; "" if there is none.
std::string agree(comm::World& world, std::optional<Finding> mine);

/// The results of a plain combination.
class Reference {
 public:
  void keep_step(const Session& session, const StepOutcome& outcome);
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// Requires: the parameters are current.
  void keep_gathered(const Session& session);

  [[nodiscard]] std::optional<Finding> compare_step(const Session& session,
                                                    const StepOutcome& outcome,
                                                    std::int64_t step) const;
  /// Collective, like check_gathered_padding().
  [[nodiscard]] std::optional<Finding> compare_gathered(Session& session) const;

  /// Collective over `world`, whose ranks read all state after the last step, each a part of every
  /// parameter, from the checkpoint in `directory`.
  [[nodiscard]] std::optional<Finding> compare_checkpoint(const std::string& directory,
                                                          const Session& session,
                                                          comm::World& world) const;

  /// Equal on two ranks if all stored values are, except those of slots that each replica has.
  [[nodiscard]] std::uint64_t hash(const layout::StateSlots& slots) const;

 private:
  using Bytes = std::vector<std::byte>;
  struct Step {
    double loss = 0, grad_norm = 0;
    std::vector<std::vector<Bytes>> state;  // by slot of the optimizer, then by parameter
  };
  std::vector<Step> steps_;
  std::vector<Bytes> gathered_;
};

/// Padding of the parts of buckets that this rank owns: between parameters and after them.
std::vector<View> owned_padding(const Session& session);
std::optional<Finding> check_zero(const std::vector<View>& padding);
/// Checks the padding of all buckets of parameters.
std::optional<Finding> check_gathered_padding(Session& session);

/// Sets all gradients and their padding to NaN. Only between steps.
void poison_gradients(Session& session);
/// Sets others' parameters, and copies of this rank's own, to NaN. Only before they are gathered.
void poison_foreign_parameters(Session& session);

/// Reduces artificial gradients with the engine. Collective. Does not change the parameters.
std::optional<Finding> check_reduced_once(Session& session);

}  // namespace trireme::bench
