// SPDX-License-Identifier: Apache-2.0
// What every rank must have in common before they compute together: the same deck and overrides,
// the same build, the same data. Ranks that differ in one of these train wrongly, or wait for
// collectives that never come, and no later error would name the reason.
//
// 1. Ranks that agree exchange one hash, in a time that grows with the logarithm of their number.
//    Only ranks that differ send what they have.
// 2. The error is the same on all ranks: every fact that differs, each value with the ranks that
//    have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::comm {

struct Fact {
  /// Whose mistake a difference is: exit 2 or 3.
  enum class Owner : std::uint8_t { user, machine };

  std::string name;   ///< "optimizer.learning_rate"
  std::string value;  ///< for people as well
  Owner owner = Owner::user;
};

/// Collective. Throws when ranks differ: a UserError with one finding per fact when any of these is
/// the user's, else a CommError that names `what`.
void expect_agreement(World& world,
                      const std::vector<Fact>& facts,
                      std::string_view what = "start the same program on all ranks");

/// Collective. The indices, in order, at which the ranks do not all have the same value.
std::vector<std::size_t> differing(World& world, std::span<const std::uint64_t> values);

}  // namespace trireme::comm
