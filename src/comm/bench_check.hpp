// SPDX-License-Identifier: Apache-2.0
// Whether a timed collective is right: once before the timing every rank gives known numbers
// and counts what comes out wrong, as nccl-tests does.
//
// Rank r gives 1 where (element + r) is a multiple of 5, else 0. Sums are whole numbers up to a
// fifth of the rank count, which bf16 holds exactly up to 1280 ranks, so any order of additions has
// the same result; and neither a shift by a shard or a rank nor a missing rank goes unseen.
#pragma once

#include <cstdint>
#include <functional>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::comm {

/// The collective, by its effect on the numbers.
enum class Outcome : std::uint8_t {
  summed,    ///< an element of `to` is the sum of all ranks'
  gathered,  ///< an element of `to` is that of the rank whose shard it lies in
  copied     ///< an element of `to` is this rank's own
};

struct Trial {
  Outcome outcome = Outcome::copied;
  View from;                ///< where this rank's numbers go before the call
  View to;                  ///< where its result is; may lie in `from`, or hold it
  std::int64_t from_first;  ///< which element of the bucket is the first of `from`
  std::int64_t to_first;
  std::int64_t shard;  ///< elements
};

/// Runs `run` once on known numbers. Returns how many elements are wrong, over all ranks.
/// Collective; leaves the numbers in `to`.
std::int64_t count_wrong(World& world,
                         device::Stream& stream,
                         const Trial& trial,
                         const std::function<void()>& run);

}  // namespace trireme::comm
