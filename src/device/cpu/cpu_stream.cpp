// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/cpu_stream.hpp"

#include <chrono>

#include <pthread.h>

#include "base/error.hpp"

namespace trireme::device::cpu {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Event::reached() const {
  return reached_.load(std::memory_order_acquire) >= target_.load(std::memory_order_acquire);
}

void Event::wait() const {
  wait_for(target());
}

void Event::wait_for(std::uint64_t target) const {
  for (auto seen = reached_.load(std::memory_order_acquire); seen < target;
       seen = reached_.load(std::memory_order_acquire))
    reached_.wait(seen, std::memory_order_acquire);
  if (failed_.load(std::memory_order_acquire))
    std::rethrow_exception(failure_);
}

double Event::seconds() const {
  return seconds_.load(std::memory_order_acquire);
}

void Event::mark(std::uint64_t target, const std::exception_ptr& failure) {
  seconds_.store(now_seconds(), std::memory_order_release);
  if (failure && !failed_.load(std::memory_order_acquire)) {
    failure_ = failure;
    failed_.store(true, std::memory_order_release);
  }
  reached_.store(target, std::memory_order_release);
  reached_.notify_all();
}

Stream::Stream(Device& device, StreamMode mode, const std::string& name)
    : device_(device), mode_(mode) {
  if (mode_ != StreamMode::concurrent)
    return;
  ring_ = std::make_unique<std::array<Entry, ring_size>>();
  worker_ = std::thread([this, name] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    work();
  });
}

Stream::~Stream() {
  if (!worker_.joinable())
    return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void Stream::enqueue(const Entry& entry) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return head_ - tail_ < ring_size; });
    (*ring_)[head_ % ring_size] = entry;
    ++head_;
  }
  changed_.notify_all();
}

void Stream::work() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return head_ > tail_ || stopping_; });
      if (head_ == tail_)
        return;
      entry = (*ring_)[tail_ % ring_size];
      ++tail_;
    }
    changed_.notify_all();
    if (failure_ && !entry.always)
      continue;
    try {
      entry.task();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

void Stream::record(device::Event& event) {
  auto* mine = dynamic_cast<Event*>(&event);
  TRIREME_EXPECT(mine != nullptr, "an event of another device recorded on a CPU stream");
  const auto target = mine->announce();
  if (mode_ == StreamMode::inlined)
    mine->mark(target, nullptr);
  else
    enqueue(Entry{Task([this, mine, target] { mine->mark(target, failure_); }), true});
}

void Stream::wait(const device::Event& event) {
  const auto* mine = dynamic_cast<const Event*>(&event);
  TRIREME_EXPECT(mine != nullptr, "a CPU stream asked to wait for an event of another device");
  const auto target = mine->target();
  if (mode_ == StreamMode::inlined)
    mine->wait_for(target);
  else
    enqueue(Entry{Task([mine, target] { mine->wait_for(target); }), false});
}

void Stream::synchronize() {
  if (mode_ == StreamMode::inlined)
    return;
  Event done;
  record(done);
  done.wait();
}

Stream& stream_of(device::Stream& stream) {
  auto* mine = dynamic_cast<Stream*>(&stream);
  TRIREME_EXPECT(mine != nullptr, "a CPU stream was expected");
  return *mine;
}

}  // namespace trireme::device::cpu
