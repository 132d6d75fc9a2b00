// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks have the same deck and overrides, the same build and the same data. Ranks
// that differ in one of these train wrongly or wait forever, and no later error would name the
// reason.
//
// 1. Ranks that agree exchange only one hash, in a time logarithmic in their number. If hashes
//    differ, the ranks exchange their facts.
// 2. The error is the same on all ranks: every fact that differs, each value with the ranks that
//    have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::comm {

struct Fact {
  /// Who can remove a difference: the user (exit code 2) or the administrator of the machine (3).
  enum class Owner : std::uint8_t { user, machine };

  std::string name;   ///< "optimizer.learning_rate"
  std::string value;  ///< readable, because messages print it
  Owner owner = Owner::user;

  auto fields() { return std::tie(name, value, owner); }
};

/// Collective. Throws when ranks differ: a UserError with one finding per fact if any of these
/// facts is the user's, else a CommError that names `what`.
void expect_agreement(World& world,
                      const std::vector<Fact>& facts,
                      std::string_view what = "start the same program on all ranks");

/// Collective. The indices, in order, at which the ranks do not all have the same value.
std::vector<std::size_t> differing(World& world, std::span<const std::uint64_t> values);

}  // namespace trireme::comm
