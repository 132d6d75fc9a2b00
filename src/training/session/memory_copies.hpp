// SPDX-License-Identifier: Apache-2.0
// Copies of the training state in the memory of the ranks, for continuing after a loss without the
// steps since the newest checkpoint.
//
// Each rank keeps a copy of the state that it would write to a checkpoint, and one of its
// partner's. The ranks form a ring in which partners are on different hosts, if no host has more
// than half of the ranks. After a loss, the remaining ranks write the newest complete copy as a
// checkpoint: each writes its own file, and that of its partner if the partner is lost. So the
// files have the bytes of any checkpoint of that step.
//
// 1. The object outlives the world, so that the copies survive it.
// 2. Two generations are kept: the older one is complete while the newer one is being made.
// 3. Copies of one step and number of ranks belong together: a loss reduces the number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint_writer.hpp"

namespace trireme::session {

/// The rank whose memory has a copy of this rank's state, and the one whose copy this rank keeps.
struct Partners {
  int to = 0, from = 0;
};
/// `hosts` by rank. Requires at least 2 ranks.
Partners partners_of(const std::vector<std::string>& hosts, int rank);

class MemoryCopies {
 public:
  /// Number of copies of a rank's state that a rank holds.
  static constexpr int number = 4;

  /// What the remaining ranks have together: `files` are those that this rank writes.
  struct Found {
    record::CheckpointFacts facts;
    std::vector<record::RankSlabs> files;
  };

  /// Collective, first in a world of at least 2 ranks.
  void choose_partners(comm::World& world);
  /// Collective. Copies `state`, and sends the copy to the partner. Of `facts` only rank 0 needs
  /// more than the step.
  void take(const record::CheckpointFacts& facts,
            std::span<const record::MutableSlab> state,
            device::Stream& compute,
            comm::World& world);
  /// Collective. The newest complete copy after step `newer_than`; nothing if there is none.
  std::optional<Found> newest(std::int64_t newer_than, comm::World& world) const;

 private:
  struct Slice {
    std::string state;
    ParameterIndex parameter{};
    std::int64_t begin = 0, elements = 0;
    DType dtype = DType::f32;

    auto fields() { return std::tie(state, parameter, begin, elements, dtype); }
  };
  struct Head {
    std::int64_t step = -1;  ///< -1: the copy is not complete
    int rank = 0, ranks = 0;
    bool own = false;  ///< of the rank that holds it
    std::vector<Slice> slices = {};
    record::CheckpointFacts facts = {};  ///< of rank 0's copy only, as in checkpoints

    auto fields() {
      return std::tie(step, rank, ranks, own, slices, facts.step, facts.next_sample, facts.seed,
                      facts.model, facts.more, facts.deck, facts.tokenizer);
    }
  };
  /// The slices one after the other, wide elements first.
  struct Copy {
    Head head;
    std::string bytes;
  };

  Partners partners_;
  std::array<Copy, 2> mine_, theirs_;  ///< by generation
  std::size_t generation_ = 0;
};

}  // namespace trireme::session
