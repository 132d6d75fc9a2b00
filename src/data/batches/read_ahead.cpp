// SPDX-License-Identifier: Apache-2.0
#include "batches/read_ahead.hpp"

#include <csignal>
#include <utility>

#include <pthread.h>
#include <sched.h>

#include "base/threads.hpp"

namespace trireme::batches {
namespace {

/// Maximum size of the tokens and targets that wait, unless two micro-batches are larger.
constexpr std::int64_t most_bytes = std::int64_t{16} << 20U;
constexpr std::int64_t least_ahead = 2;

std::size_t ring_of(const Consumption& consumption, std::int64_t context) {
  const std::int64_t block =
      2 * consumption.of.micro_sequences * context * std::int64_t{sizeof(std::int32_t)};
  // A whole step, so that the first micro-step of a step is there when the step before has ended.
  const Batches largest = consumption.of_size(consumption.sizes.largest());
  const std::int64_t wanted = std::min(largest.micro_steps() + 1, most_bytes / block);
  return static_cast<std::size_t>(std::max(wanted, least_ahead) + 1);
}

}  // namespace

std::int64_t bytes_of_tokens(std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> bytes_of) {
  std::int64_t bytes = 0;
  for (const std::int32_t token : tokens)
    if (static_cast<std::size_t>(token) < bytes_of.size())
      bytes += bytes_of[static_cast<std::size_t>(token)];
  return bytes;
}

ReadAhead::ReadAhead(const Dataset& dataset,
                     Consumption consumption,
                     std::vector<std::int32_t> bytes_of)
    : dataset_(dataset),
      consumption_(std::move(consumption)),
      bytes_of_(std::move(bytes_of)),
      blocks_(ring_of(consumption_, dataset.context())) {
  const auto tokens = static_cast<std::size_t>(consumption_.of.micro_sequences * dataset.context());
  for (Block& block : blocks_) {
    block.tokens.resize(tokens);
    block.targets.resize(tokens);
  }
}

bool ReadAhead::is_low() const {
  return made_ - taken_ <= (blocks_.size() + 1) / 2;
}

void ReadAhead::advance() {
  const Batches batches = consumption_.batches(next_step_);
  if (++next_micro_ < batches.micro_steps(consumption_.rank))
    return;
  next_micro_ = 0;
  next_first_ = dataset_.skips().after(next_first_, batches.sequences);
  ++next_step_;
}

const ReadAhead::Block& ReadAhead::take(std::int64_t step,
                                        std::int64_t step_first,
                                        std::int64_t micro) {
  std::unique_lock lock(mutex_);
  if (std::exchange(holds_, false))
    ++taken_;
  const auto wanted = [&](const Block& block) {
    return block.step == step && block.step_first == step_first && block.micro == micro;
  };
  const bool begins =
      !thread_.joinable() ||
      (made_ > taken_ ? !wanted(blocks_[taken_ % blocks_.size()])
                      : next_step_ != step || next_first_ != step_first || next_micro_ != micro);
  if (begins) {
    ++restarts_;
    made_ = taken_;
    next_step_ = step;
    next_first_ = step_first;
    next_micro_ = micro;
  }
  if (!thread_.joinable())
    thread_ = start_thread<std::jthread>("read-ahead",
                                         [this](const std::stop_token& stop) { work(stop); });
  const bool wakes = begins || is_low();
  if (made_ == taken_) {
    freed_.notify_one();
    filled_.wait(lock, [&] { return made_ > taken_; });
  }
  const Block& block = blocks_[taken_ % blocks_.size()];
  holds_ = true;
  lock.unlock();  // a thread that is woken under the lock only waits for it
  if (wakes)
    freed_.notify_one();
  if (block.problem)
    std::rethrow_exception(block.problem);
  return block;
}

void ReadAhead::work(const std::stop_token& stop) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the main thread
  // Woken, it does not push a thread that computes off its processor. Where that is not allowed,
  // nothing but time is lost.
  const sched_param priority{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &priority);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (made_ - taken_ == blocks_.size())
      freed_.wait(lock, stop, [&] { return is_low(); });
    if (stop.stop_requested())
      return;
    const std::uint64_t restarts = restarts_;
    Block& block = blocks_[made_ % blocks_.size()];
    block.step = next_step_;
    block.step_first = next_first_;
    block.micro = next_micro_;
    lock.unlock();
    fill(block);
    lock.lock();
    if (restarts != restarts_)
      continue;  // it is wanted elsewhere now
    ++made_;
    advance();
    filled_.notify_one();
  }
}

void ReadAhead::fill(Block& block) const {
  const auto context = static_cast<std::size_t>(dataset_.context());
  block.problem = nullptr;
  try {
    block.samples = consumption_.batches(block.step)
                        .micro_batch(block.step_first, consumption_.rank, block.micro);
    for (std::size_t row = 0; row < static_cast<std::size_t>(block.rows()); ++row)
      dataset_.fill(dataset_.skips().after(block.step_first,
                                           block.samples.first - block.step_first + row + 1) -
                        1,
                    std::span(block.tokens).subspan(row * context, context),
                    std::span(block.targets).subspan(row * context, context));
    const auto counted = static_cast<std::size_t>(block.samples.count) * context;
    block.bytes = bytes_of_tokens(std::span(block.targets).first(counted), bytes_of_);
  } catch (...) {
    block.problem = std::current_exception();
  }
}

}  // namespace trireme::batches
