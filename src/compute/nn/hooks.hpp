// SPDX-License-Identifier: Apache-2.0
// Callbacks from layers to a trainer.
//
// 1. before_use is called once per group of parameters in forward, before the first op that reads
//    them, and again in backward, except for the last group of forward. Parameters of earlier
//    groups are not read any more, except a tied embedding, which the head reads too.
// 2. before_write is called in backward before the first op of a micro-step that writes to a
//    gradient, and possibly again before later ones.
// 3. gradient_ready is called once per parameter, on the last micro-step, in exactly reverse
//    registration order (registry.hpp), when the last write to its gradient has been enqueued.
#pragma once

#include <span>

#include "base/index.hpp"
#include "device/device.hpp"

namespace trireme::nn {

/// These do nothing: for evaluation and sampling with complete parameters. Ops are on `stream`.
class Hooks {
 public:
  virtual ~Hooks() = default;
  virtual void before_use(std::span<const ParameterIndex> /*parameters*/,
                          device::Stream& /*stream*/) {}
  virtual void before_write(ParameterIndex /*parameter*/, device::Stream& /*stream*/) {}
  virtual void gradient_ready(ParameterIndex /*parameter*/, device::Stream& /*stream*/) {}
};

}  // namespace trireme::nn
