// SPDX-License-Identifier: Apache-2.0
#include "reduce/transfers.hpp"

#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "base/error_line.hpp"

namespace trireme::reduce {

void Transfers::set_sender(TransferSender* sender, std::span<const BucketIndex> buckets) {
  await_all();
  sender_ = sender;
  for (Channel* one : {&send_, &send_back_}) {
    queue_.forget(*one);
    one->transfers.clear();
    for (const BucketIndex bucket : buckets) {
      Transfer& transfer = one->transfers.emplace_back();
      transfer.bucket = bucket;
      for (Events& events : transfer.of_steps) events.make(device_);
    }
  }
}

// A transfer is pending only after an exception. If the stream has failed as well, that is a
// consequence of the exception, or its cause.
void Transfers::await_all() {
  for (Channel* one : {&send_, &send_back_})
    for (Transfer& transfer : one->transfers)
      if (transfer.pending) {
        transfer.pending = false;
        try {
          transfer.of_steps[event_set_].end->wait();
        } catch (const std::exception& problem) {
          error_line("warning: {}", problem.what());
        }
      }
}

void Transfers::begin_step(std::int64_t step) {
  event_set_ = event_set_of(step);
  for (Channel* one : {&send_, &send_back_})
    for (Transfer& transfer : one->transfers) transfer.of_steps[event_set_].begun = false;
}

Transfers::Transfer& Transfers::Channel::of(BucketIndex bucket) {
  const auto found = std::ranges::find(transfers, bucket, &Transfer::bucket);
  TRIREME_EXPECT(found != transfers.end(), "there is no sender for bucket {}", at(bucket));
  return *found;
}

void Transfers::Channel::start(BucketIndex bucket) {
  const Events& events = of(bucket).of_steps[all_.event_set_];
  device::Stream& stream = all_.queue_.stream();
  stream.wait(*events.ready);
  stream.record(*events.start);
  all_.sender_->enqueue(bucket, direction_, stream);
  stream.record(*events.end);
}

void Transfers::begin(BucketIndex bucket, Direction direction) {
  Transfer& transfer = channel(direction).of(bucket);
  Events& events = transfer.of_steps[event_set_];
  TRIREME_EXPECT(!events.begun, "bucket {} is sent twice in a step", at(bucket));
  events.begun = true;
  compute_.record(*events.ready);
  if (overlaps_) {
    transfer.pending = true;
    queue_.push(channel(direction), bucket);
    return;
  }
  compute_.record(*events.wait_begin);
  channel(direction).start(bucket);
  compute_.wait(*events.end);
  compute_.record(*events.wait_end);
}

void Transfers::wait(BucketIndex bucket, Direction direction) {
  Transfer& transfer = channel(direction).of(bucket);
  const Events& events = transfer.of_steps[event_set_];
  TRIREME_EXPECT(events.begun, "waiting for bucket {}, which was not sent", at(bucket));
  if (!transfer.pending)
    return;
  queue_.about_to_wait(channel(direction), bucket);
  events.await_on(compute_);
  transfer.pending = false;
}

void Transfers::take_times(std::int64_t step, std::vector<TransferTimes>& times) const {
  for (const Channel* one : {&send_, &send_back_})
    for (const Transfer& transfer : one->transfers) {
      const Events& events = transfer.of_steps[event_set_of(step)];
      if (!events.begun)
        continue;
      times.push_back(
          {events.times(transfer.bucket), one == &send_ ? Direction::send : Direction::send_back});
    }
}

}  // namespace trireme::reduce
