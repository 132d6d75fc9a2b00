// SPDX-License-Identifier: Apache-2.0
#include "reduce/transfers.hpp"

#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "base/error_line.hpp"

namespace trireme::reduce {

Transfers::Transfers(device::Device& device,
                     device::Stream& compute,
                     CollectiveQueue& queue,
                     bool overlaps)
    : device_(device), compute_(compute), queue_(queue), overlaps_(overlaps) {}

void Transfers::carry_by(Carrier* carrier, std::span<const BucketIndex> buckets) {
  await_all();
  carrier_ = carrier;
  for (Direction* one : {&there_, &back_}) {
    queue_.forget(*one);
    one->transfers.clear();
    for (const BucketIndex bucket : buckets) {
      Transfer& transfer = one->transfers.emplace_back();
      transfer.bucket = bucket;
      for (Events& events : transfer.of_steps)
        for (EventPtr* event :
             {&events.given, &events.start, &events.end, &events.wait_begin, &events.wait_end})
          *event = device_.make_event();
    }
  }
}

// Only after an exception is anything under way here. A failure of the stream that this meets came
// after that exception, or is it.
void Transfers::await_all() {
  for (Direction* one : {&there_, &back_})
    for (Transfer& transfer : one->transfers)
      if (transfer.under_way) {
        transfer.under_way = false;
        try {
          transfer.of_steps[turn_].end->wait();
        } catch (const std::exception& problem) {
          error_line("warning: {}", problem.what());
        }
      }
}

void Transfers::begin_step(std::int64_t step) {
  turn_ = turn_of(step);
  for (Direction* one : {&there_, &back_})
    for (Transfer& transfer : one->transfers) transfer.of_steps[turn_].happened = false;
}

Transfers::Transfer& Transfers::Direction::of(BucketIndex bucket) {
  const auto found = std::ranges::find(transfers, bucket, &Transfer::bucket);
  TRIREME_EXPECT(found != transfers.end(), "nobody carries pieces of bucket {}", at(bucket));
  return *found;
}

void Transfers::Direction::start(BucketIndex bucket) {
  const Events& events = of(bucket).of_steps[all_.turn_];
  device::Stream& stream = all_.queue_.stream();
  stream.wait(*events.given);
  stream.record(*events.start);
  all_.carrier_->carry(bucket, way_, stream);
  stream.record(*events.end);
}

void Transfers::begin(BucketIndex bucket, Way way) {
  Transfer& transfer = direction(way).of(bucket);
  Events& events = transfer.of_steps[turn_];
  TRIREME_EXPECT(!events.happened, "pieces of bucket {} are sent twice in a step", at(bucket));
  events.happened = true;
  compute_.record(*events.given);
  if (overlaps_) {
    transfer.under_way = true;
    queue_.push(direction(way), bucket);
    return;
  }
  compute_.record(*events.wait_begin);
  direction(way).start(bucket);
  compute_.wait(*events.end);
  compute_.record(*events.wait_end);
}

void Transfers::wait(BucketIndex bucket, Way way) {
  Transfer& transfer = direction(way).of(bucket);
  const Events& events = transfer.of_steps[turn_];
  TRIREME_EXPECT(events.happened, "waiting for pieces of bucket {}, which were not sent",
                 at(bucket));
  if (!transfer.under_way)
    return;
  queue_.about_to_wait(direction(way), bucket);
  compute_.record(*events.wait_begin);
  compute_.wait(*events.end);
  compute_.record(*events.wait_end);
  transfer.under_way = false;
}

void Transfers::take_times(std::int64_t step, std::vector<TransferTimes>& times) const {
  for (const Direction* one : {&there_, &back_})
    for (const Transfer& transfer : one->transfers) {
      const Events& events = transfer.of_steps[turn_of(step)];
      if (!events.happened)
        continue;
      TransferTimes& added = times.emplace_back();
      added.bucket = transfer.bucket;
      added.way = one == &there_ ? Way::there : Way::back;
      added.start = seconds_of(*events.start);
      added.end = seconds_of(*events.end);
      added.wait_begin = seconds_of(*events.wait_begin);
      added.waited = seconds_of(*events.wait_end) - added.wait_begin;
    }
}

}  // namespace trireme::reduce
