// SPDX-License-Identifier: Apache-2.0
#include "session/microbatch.hpp"

#include <algorithm>

namespace trireme::session {

MicroBatch::MicroBatch(device::Device& device, std::int64_t sequences, std::int64_t context)
    : sequences_(sequences), context_(context) {
  const auto bytes = static_cast<std::size_t>(sequences * context) * sizeof(std::int32_t);
  const std::size_t all = 2 * bytes + sizeof(std::uint64_t);
  losses_ = device.allocate(bytes, "micro-batch losses");
  const bool shares_memory = device.kind() == device::Kind::cpu;
  slots_.resize(shares_memory ? 1 : 2);
  for (Slot& slot : slots_) {
    slot.host = device.allocate_shared_with_host(all, "micro-batch tokens");
    if (shares_memory)
      continue;
    slot.device = device.allocate(all, "micro-batch tokens");
    slot.arrived = device.make_event();
    slot.consumed = device.make_event();
  }
  if (!shares_memory)
    copies_ = device.make_stream(device::StreamMode::concurrent, "copies");
}

const device::Buffer& MicroBatch::read_by_compute() const {
  const Slot& slot = slots_[current_];
  return copies_ ? slot.device : slot.host;
}

std::uint64_t* MicroBatch::first_sample(const device::Buffer& buffer) const {
  const std::int64_t tokens = sequences_ * context_;  // after an even number of them
  return reinterpret_cast<std::uint64_t*>(buffer.view(DType::i32).as<std::int32_t>() + 2 * tokens);
}

MicroBatch::Slot& MicroBatch::next_slot(device::Stream& compute) {
  if (copies_) {
    compute.record(*slots_[current_].consumed);
    current_ = (current_ + 1) % slots_.size();
    slots_[current_].arrived->wait();
  }
  return slots_[current_];
}

void MicroBatch::send(Slot& slot, std::int64_t first, std::int64_t count, device::Stream& compute) {
  *first_sample(slot.host) = static_cast<std::uint64_t>(first);
  if (copies_) {
    copies_->wait(*slot.consumed);
    compute.device().copy(slot.device.view(DType::i32), slot.host.view(DType::i32), *copies_);
    copies_->record(*slot.arrived);
    compute.wait(*slot.arrived);
  }
  count_ = count;
}

void MicroBatch::load(const batches::Dataset& dataset,
                      std::int64_t first,
                      std::int64_t count,
                      device::Stream& compute) {
  TRIREME_EXPECT(count >= 1 && count <= sequences_, "{} sequences into a micro-batch of {}", count,
                 sequences_);
  Slot& slot = next_slot(compute);
  auto* tokens = slot.host.view(DType::i32).as<std::int32_t>();
  auto* targets = tokens + sequences_ * context_;
  const auto length = static_cast<std::size_t>(context_);
  for (std::int64_t row = 0; row < count; ++row)
    dataset.fill(first + row, {tokens + row * context_, length},
                 {targets + row * context_, length});
  send(slot, first, count, compute);
}

void MicroBatch::load(const batches::ReadAhead::Block& block, device::Stream& compute) {
  const std::int64_t elements = sequences_ * context_;
  TRIREME_EXPECT(std::ssize(block.tokens) == elements, "{} tokens into a micro-batch of {}",
                 block.tokens.size(), elements);
  Slot& slot = next_slot(compute);
  auto* tokens = slot.host.view(DType::i32).as<std::int32_t>();
  std::ranges::copy(block.tokens, tokens);
  std::ranges::copy(block.targets, tokens + elements);
  send(slot, block.samples.first, block.rows(), compute);
}

std::span<const std::int32_t> MicroBatch::targets() const {
  const auto* tokens = slots_[current_].host.view(DType::i32).as<std::int32_t>();
  return {tokens + sequences_ * context_, static_cast<std::size_t>(count_ * context_)};
}

model::Batch MicroBatch::batch() const {
  const View both = read_by_compute().view(DType::i32);
  const std::int64_t elements = count_ * context_;
  return {both.slice(0, elements), both.slice(sequences_ * context_, elements),
          first_sample(read_by_compute())};
}

View MicroBatch::losses() const {
  return losses_.view(DType::f32, 0, count_ * context_);
}

}  // namespace trireme::session
