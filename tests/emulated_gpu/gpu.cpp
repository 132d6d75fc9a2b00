// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "queue.hpp"

namespace emulated {

// Never destroyed: static objects elsewhere may still own streams when the process ends.
Gpu& Gpu::instance() {
  static Gpu* gpu = new Gpu;
  return *gpu;
}

Gpu::Gpu() : thread_([this] { work(); }) {
  static Gpu* self = nullptr;
  self = this;
  // Unfinished work is dropped when the process ends.
  static_cast<void>(std::atexit([] {
    {
      const auto held = self->lock();
      self->stop_ = true;
      self->given_.notify_all();
    }
    self->thread_.join();
  }));
}

CUstream_st* Gpu::make_stream(int gpu, unsigned flags) {
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->gpu = gpu;
  streams_.back()->flags = flags;
  return streams_.back().get();
}

void Gpu::destroy(CUstream_st* stream) {
  stream->destroyed = true;
  ask_for(stream, stream->given);
  if (stream->items.empty() && !stream->busy)
    std::erase_if(streams_, [stream](const auto& known) { return known.get() == stream; });
}

bool Gpu::knows(const CUstream_st* stream) const {
  return std::ranges::any_of(
      streams_, [stream](const auto& known) { return known.get() == stream && !known->destroyed; });
}

void Gpu::push(CUstream_st* stream, Item item) {
  ++stream->given;
  if (item.reaches) {
    item.reaches->stream = stream;
    item.reaches->number = stream->given;
  }
  stream->items.push_back(std::move(item));
  if (!is_lazy())
    stream->asked_for = stream->given;
  given_.notify_one();
}

void Gpu::ask_for(CUstream_st* stream, std::uint64_t number) {
  if (number <= stream->asked_for)
    return;
  std::uint64_t at = stream->given - stream->items.size();  // items done or running
  stream->asked_for = number;
  for (const Item& item : stream->items)
    if (++at <= number && item.waits_for)
      ask_for(*item.waits_for);
  given_.notify_one();
}

void Gpu::ask_for(const Mark& mark) {
  if (!mark.reached)
    ask_for(mark.stream, mark.number);
}

void Gpu::wait(Lock& lock, CUstream_st* stream) {
  const auto number = stream->given;
  ask_for(stream, number);
  done_.wait(lock, [&] { return stream->done >= number; });
}

void Gpu::wait(Lock& lock, const std::shared_ptr<Mark>& mark) {
  ask_for(*mark);
  done_.wait(lock, [&] { return mark->reached; });
}

void Gpu::wait_for_all(Lock& lock) {
  std::vector<std::shared_ptr<Mark>> marks;
  for (const auto& stream : streams_)
    if (stream->done < stream->given) {
      marks.push_back(std::make_shared<Mark>());
      push(stream.get(), {.what = "wait for all", .work = {}, .reaches = marks.back()});
    }
  for (const auto& mark : marks) wait(lock, mark);
}

bool Gpu::can_go(const CUstream_st& stream) const {
  return !stream.items.empty() && stream.done < stream.asked_for &&
         (!stream.items.front().waits_for || stream.items.front().waits_for->reached);
}

CUstream_st* Gpu::choose() {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_)
    if (can_go(*stream))
      ready.push_back(stream.get());
  return ready.empty() ? nullptr : ready[chooser_.one_of(ready.size())];
}

void Gpu::work() {
  auto held = lock();
  for (;;) {
    CUstream_st* stream = nullptr;
    given_.wait(held, [&] { return stop_ || (stream = choose()) != nullptr; });
    if (stop_)
      return;
    const Item item = std::move(stream->items.front());
    stream->items.pop_front();
    if (item.work) {
      stream->busy = true;
      held.unlock();
      item.work();
      held.lock();
      stream->busy = false;
      if (const auto charge = charges.find(item.what); charge != charges.end())
        charged_ += charge->second;
    }
    ++stream->done;
    if (item.reaches) {
      item.reaches->seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
              .count() +
          charged_;
      item.reaches->reached = true;
    }
    if (stream->destroyed && stream->items.empty())
      std::erase_if(streams_, [stream](const auto& known) { return known.get() == stream; });
    done_.notify_all();
  }
}

cudaError_t enqueue(cudaStream_t stream, std::string what, std::function<void()> work) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  if (!gpu.knows(stream))
    fail("%s on a stream that does not exist (CUDA's default streams are not emulated)",
         what.c_str());
  Item item{std::move(what), std::move(work)};
  if (stream->capture) {
    if (stream->capture->invalid)
      return told(cudaErrorStreamCaptureInvalidated);
    stream->capture->items.push_back(std::move(item));
  } else {
    ++gpu.submissions;
    gpu.push(stream, std::move(item));
  }
  return cudaSuccess;
}

void charge(const std::string& what, double seconds) {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  gpu.charges[what] = seconds;
}

std::uint64_t num_submissions() {
  Gpu& gpu = Gpu::instance();
  const auto held = gpu.lock();
  return gpu.submissions;
}

}  // namespace emulated
