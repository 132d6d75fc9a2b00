// SPDX-License-Identifier: Apache-2.0
// What layers report to a trainer while they run.
//
// 1. before_use comes once per group of parameters in forward, before the first op that reads them,
//    and again in backward, but for the group that forward read last. Of those that were asked for
//    before nothing is read any more, but for a tied embedding, which the head reads too.
// 2. before_write comes in backward before the op that first writes to a gradient in a micro-step,
//    and may come again before later ones.
// 3. gradient_ready comes once per parameter, on the last micro-step of a step, in exactly reverse
//    registration order (registry.hpp), when the last write to this gradient has been enqueued.
#pragma once

#include <span>

#include "base/index.hpp"
#include "device/device.hpp"

namespace trireme::nn {

class Hooks {
 public:
  virtual ~Hooks() = default;
  /// The ops that follow on `stream` read these parameters.
  virtual void before_use(std::span<const ParameterIndex> parameters, device::Stream& stream) = 0;
  /// An op that follows on `stream` writes to this gradient.
  virtual void before_write(ParameterIndex parameter, device::Stream& stream) = 0;
  /// The last write to this gradient in this step has been enqueued on `stream`.
  virtual void gradient_ready(ParameterIndex parameter, device::Stream& stream) = 0;
};

/// Hooks for evaluation and sampling with parameters that are current: they do nothing.
class NoHooks final : public Hooks {
 public:
  void before_use(std::span<const ParameterIndex> /*parameters*/,
                  device::Stream& /*stream*/) override {}
  void before_write(ParameterIndex /*parameter*/, device::Stream& /*stream*/) override {}
  void gradient_ready(ParameterIndex /*parameter*/, device::Stream& /*stream*/) override {}
};

}  // namespace trireme::nn
