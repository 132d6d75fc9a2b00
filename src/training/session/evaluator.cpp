// SPDX-License-Identifier: Apache-2.0
#include "session/evaluator.hpp"

#include <algorithm>
#include <limits>
#include <numbers>

#include "ops/optimizer/order_free_sum.hpp"

#include "batches/read_ahead.hpp"

namespace trireme::session {

Evaluator::Evaluator(const batches::Dataset& validation,
                     std::int64_t sequences,
                     MicroBatch& micro_batch,
                     std::span<const std::int32_t> bytes_of,
                     comm::World& world)
    : validation_(validation),
      sequences_(sequences),
      micro_batch_(micro_batch),
      bytes_of_(bytes_of),
      world_(world) {}

double bits_per_byte(double nats, std::int64_t bytes) {
  return bytes > 0 ? nats / (std::numbers::ln2 * static_cast<double>(bytes))
                   : std::numeric_limits<double>::quiet_NaN();
}

Evaluation Evaluator::evaluate(model::Gpt& model,
                               model::Hooks& hooks,
                               device::Stream& stream,
                               const comm::Wanted& interrupts) {
  std::int64_t bytes = 0;
  const std::int64_t micro = micro_batch_.sequences();
  ops::StreamSum sum(stream.device());
  comm::Interruption interruption(world_, interrupts);
  std::int64_t until_check = interruption.rounds();
  for (std::int64_t round = 0; round < sequences_; round += world_.size() * micro) {
    if (until_check-- == 0) {
      stream.synchronize();
      interruption.check();
      until_check = interruption.rounds() - 1;
    }
    const std::int64_t mine = round + world_.rank() * micro;
    const bool counts = mine < sequences_;
    const std::int64_t first = counts ? mine : round;
    micro_batch_.load(validation_, first, std::min(micro, sequences_ - first), stream);
    model.evaluate(micro_batch_.batch(), micro_batch_.losses(), hooks, stream);
    if (!counts)
      continue;
    bytes += batches::bytes_of_tokens(micro_batch_.targets(), bytes_of_);
    sum.add_values(micro_batch_.losses(), stream);
  }
  sum.fetch(stream);
  stream.synchronize();
  ops::OrderFreeSum& losses = sum.fetched();
  losses.normalize();
  world_.sum(losses.words());
  world_.sum({&bytes, 1});
  const double nats = losses.value();
  return {nats / static_cast<double>(sequences_ * model.shape().context),
          bits_per_byte(nats, bytes)};
}

}  // namespace trireme::session
