// SPDX-License-Identifier: Apache-2.0
// Runs actions that may fail on some ranks, and makes all ranks throw together, so that no rank
// waits forever in the next collective.
//
//     together(world, [&] { /* every rank */ });
//     on_first_rank(world, [&] { /* rank 0 only */ });
//     value = from_first_rank(world, [&] { return /* rank 0's value */; });
//
// When the action throws on any rank, every rank throws: a UserError becomes the same UserError on
// all ranks (rank 0 prints it); an EnvironmentError is rethrown on the first rank that threw it,
// and becomes FailedElsewhere on the others, which print nothing. A ContractError is a bug of the
// program: it is not passed on, and the rank that threw it ends the job.
//
// Without a failure this costs one all-reduce; texts are sent only after a failure.
//
// The action may take any time (World::AtWork); the other ranks wait for it as long as its rank is
// alive.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "base/packing.hpp"

#include "comm/control/world.hpp"

namespace trireme::comm {

/// Another rank failed, and prints the reason.
class FailedElsewhere : public EnvironmentError {
 public:
  FailedElsewhere(int rank, const std::string& text)
      : EnvironmentError("rank " + std::to_string(rank), "a common step", text) {
    mark_known_to_all();
  }
};

namespace detail {
/// The exception that is being handled as bytes, to send to the other ranks. Rethrows a bug.
std::string packed_error();
/// Collective. Throws when any rank's `mine` is not empty; `own` is what this rank caught.
void settle(World& world, const std::string& mine, const std::exception_ptr& own);
}  // namespace detail

template <class Action>
void together(World& world, Action&& action) {
  std::string mine;
  std::exception_ptr own;
  try {
    const World::AtWork work(world);
    action();
  } catch (...) {
    mine = detail::packed_error();
    own = std::current_exception();
  }
  detail::settle(world, mine, own);
}

template <class Action>
void on_first_rank(World& world, Action&& action) {
  together(world, [&] {
    if (world.rank() == 0)
      action();
  });
}

/// What `make` returns on rank 0, on all ranks; a type that base/packing.hpp packs.
template <class Make>
auto from_first_rank(World& world, Make&& make) {
  decltype(make()) made{};
  on_first_rank(world, [&] { made = make(); });
  return unpack<decltype(made)>(world.broadcast(world.rank() == 0 ? pack(made) : "", 0));
}

/// Every rank's `mine`, in rank order; a type that base/packing.hpp packs. Collective.
template <class T>
std::vector<T> gather_packed(World& world, const T& mine) {
  std::vector<T> all;
  for (const std::string& text : world.gather_all(pack(mine))) all.push_back(unpack<T>(text));
  return all;
}

}  // namespace trireme::comm
