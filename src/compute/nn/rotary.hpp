// SPDX-License-Identifier: Apache-2.0
// The table of angles of rotary positions, shared by all attention layers of a model. It is stored
// with the activations and persists between calls.
#pragma once

#include "device/buffer.hpp"
#include "device/device.hpp"

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "ops/rotary.hpp"

namespace trireme::nn {

struct RotaryConfig {
  std::int64_t head_channels = 0;  ///< even
  double theta = 0;
  ops::RotaryScaling scaling{};
};

class Rotary {
 public:
  explicit Rotary(const RotaryConfig& config) : config_(config) {}

  /// Plans the table for the positions of the context, or of the cache.
  void plan(Planner& planner);
  /// Writes the table into `memory`, the buffer of the plan, before the first call.
  void fill(const device::Buffer& memory, device::Device& device) const;

  [[nodiscard]] ConstView table(const Call& call) const { return call.whole(table_); }
  /// Rotates queries and keys in `packed` by the positions of the call's rows.
  void rotate(const Call& call,
              View packed,
              const ops::RotaryShape& shape,
              ops::Direction direction) const;

 private:
  const RotaryConfig config_;
  Slot table_;
};

}  // namespace trireme::nn
