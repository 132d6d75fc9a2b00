// SPDX-License-Identifier: Apache-2.0
// What compression of gradients keeps between steps (reduce/compression.hpp), in checkpoints. A run
// that resumes with it has the same bits as one that was not interrupted.
//
// The state "error-r" is that of rank r alone. When a run resumes on N ranks, rank r adds up the
// states of ranks r, r + N, … of the earlier run. Errors that this run does not keep, because it
// sends its gradients in another way, are added to the first gradient. Rank 0 writes what is the
// same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/name_values.hpp"

namespace trireme::session {

class Session;

/// The part that `rank`, this rank, writes.
std::vector<record::MutableSlab> compression_slabs(const Session& session, int rank);

/// The facts that load_compression() reads; none without compression.
record::NameValues compression_facts(const Session& session);

/// Collective. Loads what the checkpoint in `directory` has of the state; the rest stays zero.
void load_compression(const std::string& directory,
                      const record::CheckpointFacts& facts,
                      Session& session,
                      comm::World& world,
                      Log& log);

}  // namespace trireme::session
