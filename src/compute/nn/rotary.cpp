// SPDX-License-Identifier: Apache-2.0
#include "nn/rotary.hpp"

namespace trireme::nn {

ops::RotaryShape rotary_shape(const Call& call, const ops::AttentionShape& shape) {
  return {.time = call.context,
          .heads = shape.heads + shape.key_value_heads(),
          .head_channels = shape.head_channels,
          .stride = shape.packed_width()};
}

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
                    const ops::AttentionShape& shape,
                    ops::Direction direction) const {
  run(ops::Rotate{.packed = packed,
                  .table = table(call),
                  .positions = call.positions(),
                  .shape = rotary_shape(call, shape),
                  .direction = direction},
      call.stream);
}

}  // namespace trireme::nn
