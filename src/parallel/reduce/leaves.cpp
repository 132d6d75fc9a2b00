// SPDX-License-Identifier: Apache-2.0
#include "reduce/leaves.hpp"

#include <bit>

#include "base/error.hpp"

#include "ops/elementwise.hpp"

namespace trireme::reduce {

std::int64_t most_leaves_of_a_rank(const ParallelConfig& config, int ranks) {
  if (config.reduction != comm::Reduction::tree)
    return 1;
  const std::int64_t leaves = config.logical_shards.value_or(0);
  TRIREME_EXPECT(leaves >= ranks && std::has_single_bit(static_cast<std::uint64_t>(leaves)),
                 "a tree of {} logical shards on {} ranks", leaves, ranks);
  return leaves / static_cast<std::int64_t>(std::bit_floor(static_cast<unsigned>(ranks)));
}

int num_waiting_sums(std::int64_t leaves) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(leaves))) - 1;
}

Leaves::Leaves(std::int64_t most,
               const layout::Plan& plan,
               View gradients,
               device::Device& device,
               Compression* compression)
    : most_(most),
      per_step_(most),
      gradients_(gradients),
      device_(device),
      compression_(compression) {
  const int num_waiting = compression == nullptr ? num_waiting_sums(most) : 0;
  if (num_waiting == 0)
    return;
  memory_ = device_.allocate(static_cast<std::size_t>(num_waiting) * gradients_.bytes(),
                             "partial sums of gradients");
  const View all = memory_.view(DType::f32);
  for (int k = 0; k < num_waiting; ++k)
    waiting_.push_back(all.slice(k * gradients_.elements, gradients_.elements));
  for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
    const layout::Placement& place = plan.placement(static_cast<ParameterIndex>(p));
    own_.push_back(gradients_.slice(place.begin, place.elements));
    for (const View& waiting : waiting_)
      waiting_parts_.push_back(waiting.slice(place.begin, place.elements));
  }
}

void Leaves::begin_step(std::int64_t leaves) {
  TRIREME_EXPECT(
      leaves >= 1 && leaves <= most_ && std::has_single_bit(static_cast<std::uint64_t>(leaves)),
      "a step of {} leaves where {} are the most", leaves, most_);
  per_step_ = leaves;
  num_waiting_ = waiting_.empty() ? 0 : static_cast<std::size_t>(num_waiting_sums(leaves));
  finished_ = 0;
  if (compression_ != nullptr)
    compression_->begin_step(leaves);
}

void Leaves::set_aside(device::Stream& stream) {
  TRIREME_ASSERT(!in_last(), "leaf {} of {} is the last", finished_, per_step_);
  if (compression_ != nullptr) {
    compression_->keep_leaf(finished_, gradients_, stream);
  } else {
    const int num_pairs = std::countr_one(static_cast<std::uint64_t>(finished_));
    for (int k = 0; k < num_pairs; ++k)
      run(ops::Add{.sum = gradients_, .term = waiting_[static_cast<std::size_t>(k)]}, stream);
    device_.copy(waiting_[static_cast<std::size_t>(num_pairs)], gradients_, stream);
  }
  device_.fill_zero(gradients_, stream);
  ++finished_;
}

void Leaves::add_waiting(ParameterIndex parameter, device::Stream& stream) const {
  TRIREME_ASSERT(in_last(), "leaf {} of {} is not the last", finished_, per_step_);
  for (std::size_t k = 0; k < num_waiting_; ++k)
    run(ops::Add{.sum = own_[at(parameter)],
                 .term = waiting_parts_[at(parameter) * waiting_.size() + k]},
        stream);
}

}  // namespace trireme::reduce
