// SPDX-License-Identifier: Apache-2.0
// Streams and events of the CPU.
//
// A concurrent stream is a ring of tasks and one worker thread. Tasks are stored in place (no
// allocation per task), so a task is a callable of at most Task::capacity bytes. If the ring is
// full, the enqueuing thread waits.
//
// 1. head_ - tail_ is the number of tasks in the ring; both only grow; guarded by mutex_.
// 2. The worker runs tasks in order, one at a time. After the first exception it keeps consuming,
//    but only signals events. The destructor waits until the ring is empty.
// 3. An event shares its state with every queued record and wait, so it may be destroyed before a
//    stream reaches it.
// 4. A queued wait refers to a record that was queued before it. By induction over the order of
//    queuing, every wait ends, also when rings are full.
// 5. Captured tasks are stored by the capturing stream, and each launch copies them into the ring.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "device/cpu/workspace.hpp"
#include "device/device.hpp"

namespace trireme::device::cpu {

/// The first exception of a stream, shared by the streams and events that it reached.
struct Failure {
  std::exception_ptr error;
  /// A host thread has received the exception.
  std::atomic<bool> reported{false};
};

/// The part of an event that streams share. Any thread.
class EventState {
 public:
  /// The number of the latest record; 0 before the first.
  [[nodiscard]] std::uint64_t target() const { return target_.load(std::memory_order_acquire); }
  /// Announces one more record and returns its number.
  std::uint64_t announce() { return target_.fetch_add(1, std::memory_order_acq_rel) + 1; }

  [[nodiscard]] bool reached(std::uint64_t target) const {
    return reached_.load(std::memory_order_acquire) >= target;
  }
  [[nodiscard]] double seconds() const { return seconds_.load(std::memory_order_acquire); }

  /// Marks record `target` as reached, by a stream that failed with `failure` if that is not null.
  /// The event keeps the first failure.
  void mark(std::uint64_t target, const std::shared_ptr<Failure>& failure);
  /// Blocks until record `target` is reached. Returns the failure of its streams, or null.
  [[nodiscard]] std::shared_ptr<Failure> await(std::uint64_t target);

 private:
  std::atomic<std::uint64_t> target_{0};
  std::atomic<std::uint64_t> reached_{0};
  std::atomic<double> seconds_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Failure> failure_;  // guarded
};

class Event final : public device::Event {
 public:
  [[nodiscard]] bool reached() const override { return state_->reached(state_->target()); }
  void wait() const override;
  [[nodiscard]] double seconds() const override { return state_->seconds(); }

  [[nodiscard]] const std::shared_ptr<EventState>& state() const { return state_; }

 private:
  const std::shared_ptr<EventState> state_ = std::make_shared<EventState>();
};

class Task {
 public:
  static constexpr std::size_t capacity = 288;

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
  /// `threads`: number of threads of a parallel loop on the worker; an inline stream uses those of
  /// its caller. Throws DeviceError when the thread cannot be started.
  Stream(Device& device, StreamMode mode, const std::string& name, int threads);
  /// Waits for the queued tasks. Prints a failure that was not reported yet.
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Device& device() const override { return device_; }
  [[nodiscard]] StreamMode mode() const override { return mode_; }
  void record(device::Event& event) override;
  void wait(const device::Event& event) override;
  void synchronize() override;
  void begin_capture() override;
  std::unique_ptr<device::Graph> end_capture() override;

  /// Runs `callable` in stream order: now on an inline stream, on the worker otherwise. It may
  /// throw: on an inline stream the caller gets the exception, else the thread that waits.
  template <class F>
  void run(F callable) {
    if (captured_)
      captured_->emplace_back(callable);
    else if (mode_ == StreamMode::inlined)
      callable();
    else
      enqueue({.task = Task(callable)});
  }
  /// For the callable that is running.
  [[nodiscard]] Workspace& workspace() { return workspace_; }
  void launch(const std::vector<Task>& tasks);

 private:
  /// A queued task, record of an event, or wait for an event.
  struct Entry {
    Task task = {};
    std::shared_ptr<EventState> event = nullptr;
    std::uint64_t target = 0;  ///< number of the event's record
    bool waits = false;
  };
  static constexpr std::size_t ring_size = 1024;

  void enqueue(Entry entry);
  void expect_no_capture(const char* call) const;
  void work();
  /// Called by the worker. Throws what the task throws.
  void run_entry(Entry& entry);

  Device& device_;
  const StreamMode mode_;
  const std::string name_;
  Event idle_;  // recorded by synchronize()
  std::optional<std::vector<Task>> captured_;
  Workspace workspace_;

  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::condition_variable not_full_;
  std::unique_ptr<std::array<Entry, ring_size>> ring_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  bool stopping_ = false;

  std::shared_ptr<Failure> failure_;  // worker thread; the destructor reads it after the join
  std::thread worker_;                // last: starts when all other members are ready
};

/// `stream` as a CPU stream. Throws ContractError when it belongs to another device.
Stream& stream_of(device::Stream& stream);

}  // namespace trireme::device::cpu
