// SPDX-License-Identifier: Apache-2.0
#include "train/evaluator.hpp"

#include <algorithm>

#include "ops/order_free_sum.hpp"

namespace trireme::train {

Evaluator::Evaluator(const data::Dataset& validation,
                     std::int64_t sequences,
                     MicroBatch& micro_batch,
                     comm::World& world)
    : validation_(validation), sequences_(sequences), micro_batch_(micro_batch), world_(world) {}

double Evaluator::mean_loss(model::Gpt& model, model::Hooks& hooks, device::Stream& stream) {
  const std::int64_t micro = micro_batch_.sequences();
  ops::StreamSum sum(stream.device());
  for (std::int64_t first = world_.rank() * micro; first < sequences_;
       first += world_.size() * micro) {
    micro_batch_.load(validation_, first, std::min(micro, sequences_ - first), stream);
    model.evaluate(micro_batch_.batch(), micro_batch_.losses(), hooks, stream);
    sum.add_values(micro_batch_.losses(), stream);
  }
  sum.fetch(stream);
  stream.synchronize();
  ops::OrderFreeSum& losses = sum.fetched();
  losses.normalize();
  world_.sum(losses.words());
  return losses.value() / static_cast<double>(sequences_ * model.shape().context);
}

}  // namespace trireme::train
