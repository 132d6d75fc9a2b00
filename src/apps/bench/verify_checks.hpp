// SPDX-License-Identifier: Apache-2.0
// What `trireme verify` checks in a session: see verify.hpp.
//
// A check gives the first thing that is wrong on this rank, or nothing; agree() makes all ranks
// have the results of the first. CPU only: the host reads and writes the engine's memory between
// steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/view.hpp"

#include "comm/control/world.hpp"

#include "session/session.hpp"

namespace trireme::bench {

using session::Session;
using session::StepOutcome;

struct Finding {
  /// Small is first: parameter and element where there are such.
  std::int64_t order = 0;
  std::string text;
};

/// Collective. The finding of smallest order, with the rank that has it; empty when none has one.
std::string agree(comm::World& world, const std::optional<Finding>& mine);

/// What a plain combination computed.
class Reference {
 public:
  void keep_step(const Session& session, const StepOutcome& outcome);
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// Requires: the parameters are current.
  void keep_gathered(const Session& session);

  [[nodiscard]] std::optional<Finding> compare_step(const Session& session,
                                                    const StepOutcome& outcome,
                                                    std::int64_t step) const;
  /// Collective, as is the next check of what was gathered.
  [[nodiscard]] std::optional<Finding> compare_gathered(Session& session) const;

  /// Equal on two ranks when all kept values are.
  [[nodiscard]] std::uint64_t hash() const;

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
/// That of all buckets of parameters.
std::optional<Finding> check_gathered_padding(Session& session);

/// All gradients become NaN, padding included. Between steps only.
void poison_gradients(Session& session);
/// The parameters that other ranks own become NaN, and copies of what this rank owns. Before they
/// are gathered only.
void poison_foreign_parameters(Session& session);

/// One reduction of made-up gradients through the engine. Collective. Leaves the parameters as they
/// are.
std::optional<Finding> check_reduced_once(Session& session);

}  // namespace trireme::bench
