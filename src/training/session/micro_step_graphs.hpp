// SPDX-License-Identifier: Apache-2.0
// Micro-steps that are captured once and then launched as graphs. A micro-step of GPT-2 has some
// hundred kernels, which need one call of the host each, or one call for a graph.
//
// But the host must act inside a micro-step: compute waits for the gather of a bucket before
// forward first reads from it; a bucket's reduction starts when its last gradient is complete; and
// if buckets share slots of memory (parallel.shard: gradients), compute waits until a slot is free.
// So a recording is a list of pieces, one graph each, with a cut at each of these points. After a
// piece the real hooks are called, outside of any capture, with the recorded arguments. With
// parallel.shard: parameters there are also cuts for the gathers of parameters:
//
//   first micro-step of a step   a cut before the first use of each bucket's parameters
//   last micro-step              a cut after the last gradient of each bucket; the other gradients
//                                of the bucket are reported there as well, in their order
//   any other                    one piece
//   gradients share slots        every micro-step is a last one; and a cut before the first write
//                                to each bucket's gradients
//   parameters share slots       a cut in every micro-step whenever the model requests parameters
//
// 1. Cuts depend only on the plan and on the micro-step's position in the step, not on the buckets
//    that were current while recording, so a recording is valid for every later step. It is found
//    by this position and by the batch's memory, since batches alternate between two slots.
// 2. Arguments that a graph received by value are fixed and must not change between steps. What
//    changes (tokens, targets, the number of the first sample) is read from the batch's memory.
// 3. Scratch has its final addresses before the first recording (the pool is frozen, every product
//    and workspace exists: the first step of a session is not captured), and no operation reads
//    data of an earlier launch. So evaluation and sampling, which are not captured, share it with
//    the graphs: all run on the compute stream, one after another.
// 4. The numbers are those of model.train() to the bit: the same operations in the same order.
// 5. A replay allocates nothing. Recordings are never dropped: there are at most two batch slots,
//    with up to four positions each (if the batch size changes, one micro-step may be the first and
//    the last).
// 6. All members are called from the host thread that enqueues on the compute stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "model/gpt.hpp"

namespace trireme::session {

class MicroStepGraphs {
 public:
  /// All of them must outlive the graphs. In the first micro-step `hooks` is called for parameters
  /// in the groups in which the model requests them. Before a later micro-step it is called once
  /// for all parameters or, if parameters share slots, as in the first. If gradients share slots,
  /// it is called for writes to gradients once per bucket.
  MicroStepGraphs(model::Gpt& model,
                  const layout::Plan& plan,
                  model::Hooks& hooks,
                  device::Stream& compute,
                  bool gradients_share_slots = false,
                  bool parameters_share_slots = false);

  /// Like model.train(): if there is no recording of this micro-step, records it while it runs,
  /// else replays it. `first`, `last`: its position in the step.
  void train(const model::Batch& batch, View losses, bool first, bool last);

  [[nodiscard]] std::size_t num_recordings() const { return recordings_.size(); }

 private:
  struct Piece {
    std::unique_ptr<device::Graph> graph;
    std::vector<ParameterIndex> used, ready;  ///< passed to the hooks after the piece
    std::optional<ParameterIndex> written;    ///< passed to the hooks last
  };
  struct Recording {
    const std::byte* tokens = nullptr;
    const std::byte* losses = nullptr;
    std::int64_t rows = 0;
    bool first = false, last = false;
    std::vector<Piece> pieces;
  };
  class Recorder;

  void run(const Piece& piece);

  model::Gpt& model_;
  const layout::Plan& plan_;
  model::Hooks& hooks_;
  device::Stream& compute_;
  const bool gradients_share_slots_, parameters_share_slots_;
  std::vector<ParameterIndex> all_;
  std::vector<Recording> recordings_;
};

}  // namespace trireme::session
