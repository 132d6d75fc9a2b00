// SPDX-License-Identifier: Apache-2.0
// Checks the result of a timed collective: once, before the timing, every rank contributes known
// numbers and counts the wrong results, as nccl-tests does.
//
// Rank r contributes 1 where (element + r) is a multiple of 5, else 0. Sums are integers up to a
// fifth of the rank count, which bf16 holds exactly up to 1280 ranks, so any order of additions has
// the same result. A shift by a shard or a rank, or a missing rank, changes the result.
#pragma once

#include <cstdint>
#include <functional>

#include "base/view.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::bench {

enum class Outcome : std::uint8_t {
  summed,    ///< an element of `to` is the sum over all ranks
  gathered,  ///< an element of `to` is from the rank that owns its shard
  copied     ///< an element of `to` is from this rank
};

struct Trial {
  Outcome outcome = Outcome::copied;
  View from = {};               ///< the operand: this rank's numbers
  View to = {};                 ///< the result; may be a part of `from`, or contain it
  std::int64_t from_first = 0;  ///< index in the bucket of the first element of `from`
  std::int64_t to_first = 0;
  std::int64_t shard = 0;  ///< elements
};

/// Runs `run` once on known numbers. Returns the number of wrong elements over all ranks.
/// Collective; the results stay in `to`.
std::int64_t count_wrong(comm::World& world,
                         device::Stream& stream,
                         const Trial& trial,
                         const std::function<void()>& run);

}  // namespace trireme::bench
