// SPDX-License-Identifier: Apache-2.0
#include "train/microbatch.hpp"

namespace trireme::train {

MicroBatch::MicroBatch(device::Device& device, std::int64_t sequences, std::int64_t context)
    : sequences_(sequences), context_(context) {
  const auto bytes = static_cast<std::size_t>(sequences * context) * sizeof(std::int32_t);
  tokens_ = device.allocate(bytes, "micro-batch tokens");
  targets_ = device.allocate(bytes, "micro-batch targets");
  losses_ = device.allocate(bytes, "micro-batch losses");
}

void MicroBatch::load(const data::Dataset& dataset, std::int64_t first, std::int64_t count) {
  TRIREME_EXPECT(count >= 1 && count <= sequences_, "{} sequences into a micro-batch of {}", count,
                 sequences_);
  auto* tokens = tokens_.view(DType::i32).as<std::int32_t>();
  auto* targets = targets_.view(DType::i32).as<std::int32_t>();
  const auto length = static_cast<std::size_t>(context_);
  for (std::int64_t row = 0; row < count; ++row)
    dataset.fill(first + row, {tokens + row * context_, length},
                 {targets + row * context_, length});
  first_ = first;
  count_ = count;
}

model::Batch MicroBatch::batch() const {
  return {tokens_.view(DType::i32, 0, count_ * context_),
          targets_.view(DType::i32, 0, count_ * context_), static_cast<std::uint64_t>(first_)};
}

View MicroBatch::losses() const {
  return losses_.view(DType::f32, 0, count_ * context_);
}

}  // namespace trireme::train
