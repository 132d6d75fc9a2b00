// SPDX-License-Identifier: Apache-2.0
#include "train/evaluator.hpp"

#include <algorithm>

namespace trireme::train {

Evaluator::Evaluator(const data::Dataset& validation,
                     std::int64_t sequences,
                     MicroBatch& micro_batch,
                     comm::World& world)
    : validation_(validation),
      sequences_(sequences),
      micro_batch_(micro_batch),
      world_(world),
      exchange_(world) {}

double Evaluator::mean_loss(model::Gpt& model, model::Hooks& hooks, device::Stream& stream) {
  const std::int64_t micro = micro_batch_.sequences();
  ops::OrderFreeSum sum;
  for (std::int64_t first = world_.rank() * micro; first < sequences_;
       first += world_.size() * micro) {
    micro_batch_.load(validation_, first, std::min(micro, sequences_ - first));
    model.evaluate(micro_batch_.batch(), micro_batch_.losses(), hooks, stream);
    ops::add_values(sum, micro_batch_.losses(), stream);
  }
  stream.synchronize();
  return exchange_.agree(sum, sequences_ * model.shape().context, {}).mean_loss;
}

}  // namespace trireme::train
