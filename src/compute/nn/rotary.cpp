// SPDX-License-Identifier: Apache-2.0
#include "nn/rotary.hpp"

namespace trireme::nn {

void Rotary::plan(Planner& planner) {
  const PlanSizes& sizes = planner.sizes();
  const std::int64_t positions = sizes.cache.given() ? sizes.cache.positions : sizes.context;
  table_ = planner.retain_always("rotary", positions * config_.head_channels);
}

void Rotary::fill(const device::Buffer& memory, device::Device& device) const {
  const std::vector<float> table =
      ops::rotary_table(table_.elements / config_.head_channels, config_.head_channels,
                        config_.theta, config_.scaling);
  const auto stream = device.make_stream(device::StreamMode::inlined, "rotary");
  device.copy(View(memory.data() + table_.offset, table_.elements, DType::f32),
              view_of(table.data(), std::ssize(table)), *stream);
  stream->synchronize();
}

void Rotary::rotate(const Call& call,
                    View packed,
                    const ops::RotaryShape& shape,
                    ops::Direction direction) const {
  run(ops::Rotate{.packed = packed,
                  .table = table(call),
                  .positions = call.positions(),
                  .shape = shape,
                  .direction = direction},
      call.stream);
}

}  // namespace trireme::nn
