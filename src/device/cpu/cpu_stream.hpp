// SPDX-License-Identifier: Apache-2.0
// Streams and events of the CPU.
//
// A concurrent stream is a ring of tasks and one worker thread. Tasks are stored in place (no
// allocation per task), so a task is a callable of at most Task::capacity bytes. A full ring makes
// the enqueuer wait: back-pressure, never loss.
//
// 1. head_ - tail_ is the number of tasks in the ring; both only grow; guarded by mutex_.
// 2. The worker runs tasks in order, one at a time; after the first exception it keeps consuming
// but only signals events.
// 3. An event's target_ counts records (enqueuing side); reached_ is the newest record reached
// (running side), published with
//    release order after the time and failure it carries.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "device/device.hpp"

namespace trireme::device::cpu {

/// The host's steady clock in seconds; the clock of every CPU event.
double now_seconds();

class Event final : public device::Event {
 public:
  [[nodiscard]] bool reached() const override;
  void wait() const override;
  [[nodiscard]] double seconds() const override;

  /// The record that a wait called now refers to.
  [[nodiscard]] std::uint64_t target() const { return target_.load(std::memory_order_acquire); }
  /// Blocks until record number `target` is reached; rethrows its stream's failure.
  void wait_for(std::uint64_t target) const;

  /// Enqueuing side: announces one more record and returns its number.
  std::uint64_t announce() { return target_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  /// Running side: record `target` is reached now.
  void mark(std::uint64_t target, const std::exception_ptr& failure);

 private:
  std::atomic<std::uint64_t> target_{0};
  std::atomic<std::uint64_t> reached_{0};
  std::atomic<double> seconds_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;  // written before reached_, read after it when failed_
};

/// A callable stored in place.
class Task {
 public:
  static constexpr std::size_t capacity = 192;

  Task() = default;
  template <class F>
  explicit Task(F callable) {
    static_assert(sizeof(F) <= capacity && alignof(F) <= alignof(std::max_align_t));
    static_assert(std::is_trivially_copyable_v<F>, "capture pointers and values only");
    ::new (static_cast<void*>(storage_.data())) F(callable);
    run_ = [](std::byte* at) { (*reinterpret_cast<F*>(at))(); };
  }
  void operator()() { run_(storage_.data()); }

 private:
  alignas(std::max_align_t) std::array<std::byte, capacity> storage_{};
  void (*run_)(std::byte*) = nullptr;
};

class Stream final : public device::Stream {
 public:
  Stream(Device& device, StreamMode mode, const std::string& name);
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Device& device() const override { return device_; }
  [[nodiscard]] StreamMode mode() const override { return mode_; }
  void record(device::Event& event) override;
  void wait(const device::Event& event) override;
  void synchronize() override;

  /// Runs `callable` in stream order: now on an inline stream, on the worker otherwise. It may
  /// throw.
  template <class F>
  void run(F callable) {
    if (mode_ == StreamMode::inlined)
      callable();
    else
      enqueue(Entry{Task(callable), false});
  }

 private:
  struct Entry {
    Task task;
    bool always = false;  // runs even after a failure: it only signals
  };
  static constexpr std::size_t ring_size = 1024;

  void enqueue(const Entry& entry);
  void work();

  Device& device_;
  const StreamMode mode_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<std::array<Entry, ring_size>> ring_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  bool stopping_ = false;

  std::exception_ptr failure_;  // worker thread only, until it is seen through an event
  std::thread worker_;          // last: starts when all else is ready
};

/// The CPU stream behind `stream`. Throws ContractError when it belongs to another device.
Stream& stream_of(device::Stream& stream);

}  // namespace trireme::device::cpu
