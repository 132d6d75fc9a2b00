// SPDX-License-Identifier: Apache-2.0
// Micro-steps that were captured once and are launched from then on. A micro-step of GPT-2 is some
// hundred kernels; launched one by one they cost the host of a GPU as many calls, launched as a
// graph one.
//
// The host has to act in between, though: compute waits for the gather of a bucket before forward
// first reads from it, a bucket's reduction starts when its last gradient is there, and where
// buckets take turns in memory (parallel.shard: gradients), compute waits until it is free. So a
// recording is a list of pieces, a graph each, cut where that happens; after a piece the real
// hooks are called, outside of any capture, with the arguments of the recording. With
// parallel.shard: parameters the same holds of their gathers:
//
//   first micro-step of a step   a cut before the first use of each bucket's parameters
//   last micro-step              a cut after the last gradient of each bucket; the other gradients
//                                of the bucket are reported there as well, in their order
//   any other                    one piece
//   where buckets take turns     every micro-step is a last one; and a cut before the first write
//                                to each bucket's gradients
//   where parameters do          a cut in every micro-step wherever parameters are asked for
//
// 1. Cuts follow from the plan and from the micro-step's place in the step, never from what was
//    current or finished while recording: a recording holds for every later step. It is found by
//    that place and by the batch's memory, since batches take turns.
// 2. What a graph was given by value is frozen, so nothing of that may change between steps: what
//    does (tokens, targets, the number of the first sample) is read from the batch's memory.
// 3. Scratch has its final addresses before the first recording (the pool is frozen, every product
//    and workspace is made: the first step of a session is not captured), and no operation
//    expects to find there what it left. So evaluation and sampling, which are not captured, share
//    it with the graphs: all run on the one compute stream, one after the other.
// 4. The numbers are those of model.train() to the bit: the same operations in the same order.
// 5. A replay allocates nothing. Recordings are never dropped: two batches in turns at the most, of
//    up to four places each (with a batch that changes, one micro-step may be the first and the
//    last).
// 6. One host thread, the one that enqueues on the compute stream.
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
  /// All of them outlive the graphs. `hooks` is called for parameters in the groups in which the
  /// model asks for them; before later micro-steps, of all at once, or where parameters take turns
  /// as in the first; and of writes to gradients where these take turns, once per bucket.
  MicroStepGraphs(model::Gpt& model,
                  const layout::Plan& plan,
                  model::Hooks& hooks,
                  device::Stream& compute,
                  bool takes_turns = false,
                  bool parameters_take_turns = false);

  /// As model.train(): records a micro-step that is not known yet while it runs, else replays it.
  /// `first`, `last`: its place in the step.
  void train(const model::Batch& batch, View losses, bool first, bool last);

  /// How many there are.
  [[nodiscard]] std::size_t num_recordings() const { return recordings_.size(); }

 private:
  struct Piece {
    std::unique_ptr<device::Graph> graph;
    std::vector<ParameterIndex> used, ready;  ///< reported to the hooks after it
    std::optional<ParameterIndex> written;    ///< and then
  };
  struct Recording {
    const std::byte* tokens = nullptr;
    const std::byte* losses = nullptr;
    std::int64_t rows = 0;
    bool first = false, last = false;
    std::vector<Piece> pieces;
  };
  class Capture;
  class Recorder;

  void run(const Piece& piece);

  model::Gpt& model_;
  const layout::Plan& plan_;
  model::Hooks& hooks_;
  device::Stream& compute_;
  const bool takes_turns_, parameters_take_turns_;
  std::vector<ParameterIndex> all_;
  std::vector<Recording> recordings_;
};

}  // namespace trireme::session
