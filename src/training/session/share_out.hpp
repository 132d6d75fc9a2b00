// SPDX-License-Identifier: Apache-2.0
// Divides passes through a model among the ranks: rank r makes every ranks-th of them.
//
// 1. With Passes::equal, a rank without a pass in a round repeats the first one of that round, and
//    the result does not count: the other ranks need its shards.
// 2. With Passes::needed, an error of one rank becomes an error of all
//    (comm/control/together.hpp). With Passes::equal the others may be waiting for it in a gather,
//    so it ends the job, as an error in a step does.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/round_up.hpp"

#include "comm/control/interruption.hpp"
#include "comm/control/together.hpp"
#include "comm/control/world.hpp"

namespace trireme::session {

/// How many passes through the model a rank makes over its part of a set: as many as it needs, or
/// as many as every other rank, because the hooks gather parameters of which all have a part.
enum class Passes { needed, equal };

/// Collective. Calls pass(number, counts) for this rank's part of 0 <= number < `count`. Throws
/// comm::Interrupted on all ranks when one of them wants to end.
template <class Pass>
void share_out(Passes passes,
               std::int64_t count,
               comm::World& world,
               const Pass& pass,
               const comm::Wanted& interrupts = {}) {
  comm::Interruption interruption(world, interrupts);
  const std::int64_t rounds = divided_up(count, std::int64_t{world.size()});
  for (std::int64_t done = 0; done < rounds;) {
    const std::int64_t next = done + std::min(interruption.rounds(), rounds - done);
    const auto make = [&] {
      for (std::int64_t round = done; round < next; ++round) {
        const std::int64_t first = round * world.size(), own = first + world.rank();
        if (own < count)
          pass(own, true);
        else if (passes == Passes::equal)
          pass(first, false);
      }
    };
    if (passes == Passes::equal)
      make();
    else
      comm::together(world, make);
    done = next;
    if (done < rounds)
      interruption.check();
  }
}

}  // namespace trireme::session
