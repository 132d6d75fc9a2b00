// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/cpu_stream.hpp"

#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/threads.hpp"
#include "device/recorder.hpp"

namespace trireme::device::cpu {
namespace {

void rethrow_to_host(const std::shared_ptr<Failure>& failure) {
  if (!failure)
    return;
  failure->reported.store(true, std::memory_order_relaxed);
  std::rethrow_exception(failure->error);
}

/// The argument of sched_getattr() and sched_setattr(), which not every C library declares.
struct SchedulingAttributes {
  std::uint32_t size = 48, policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

/// Requests the shortest time slices for the calling thread, so that it preempts a compute thread
/// soon after it wakes: a collective is many short pieces of work between waits. Changes neither
/// the priority nor the share of the core. Only a hint: kernels before Linux 6.12 ignore it, and
/// failure is harmless. Source: docs/results/choices.csv.
void request_short_time_slices() {
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  constexpr std::uint64_t least_ns = 100'000;
  const pid_t thread = gettid();
  SchedulingAttributes now;
  if (syscall(SYS_sched_getattr, thread, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER)
    return;
  now.size = sizeof now;
  now.runtime_ns = least_ns;
  now.deadline_ns = now.period_ns = 0;
  syscall(SYS_sched_setattr, thread, &now, 0);
#endif
}

const std::shared_ptr<EventState>& state_of(const device::Event& event) {
  const auto* mine = dynamic_cast<const Event*>(&event);
  TRIREME_EXPECT(mine != nullptr, "an event of another device on a CPU stream");
  return mine->state();
}

class Graph final : public device::Graph {
 public:
  explicit Graph(std::vector<Task> tasks) : tasks_(std::move(tasks)) {}
  void launch(device::Stream& stream) override { stream_of(stream).launch(tasks_); }

 private:
  const std::vector<Task> tasks_;
};

}  // namespace

void EventState::mark(std::uint64_t target, const std::shared_ptr<Failure>& failure) {
  const std::lock_guard lock(mutex_);
  const bool in_order = reached_.load(std::memory_order_relaxed) + 1 == target;
  if (!failure_)
    failure_ = failure;
  seconds_.store(steady_seconds(), std::memory_order_release);
  reached_.store(target, std::memory_order_release);
  changed_.notify_all();
  TRIREME_EXPECT(in_order, "record {} of an event was reached before an earlier one", target);
}

std::shared_ptr<Failure> EventState::await(std::uint64_t target) {
  if (target == 0)
    return nullptr;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached(target); });
  return failure_;
}

void Event::wait() const {
  rethrow_to_host(state_->await(state_->target()));
}

Stream::Stream(Device& device, StreamMode mode, const std::string& name, int threads)
    : device_(device), mode_(mode), name_(name), workspace_(device) {
  if (mode_ != StreamMode::concurrent)
    return;
  ring_ = std::make_unique<std::array<Entry, ring_size>>();
  worker_ = start_thread(name_.substr(0, 15), [this, threads] {
    omp_set_num_threads(threads);  // OpenMP stores this per thread; the default is all CPUs
    request_short_time_slices();
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
  not_empty_.notify_one();
  worker_.join();
  if (!failure_ || failure_->reported.load(std::memory_order_relaxed))
    return;
  try {
    std::rethrow_exception(failure_->error);
  } catch (const std::exception& error) {
    error_line("warning: stream {} failed, and no call reported it: {}", name_, error.what());
  } catch (...) {
    error_line("warning: stream {} failed, and no call reported it", name_);
  }
}

void Stream::enqueue(Entry entry) {
  {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [&] { return head_ - tail_ < ring_size; });
    (*ring_)[head_ % ring_size] = std::move(entry);
    ++head_;
  }
  not_empty_.notify_one();
}

void Stream::work() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      not_empty_.wait(lock, [&] { return head_ > tail_ || stopping_; });
      if (head_ == tail_)
        return;
      entry = std::move((*ring_)[tail_ % ring_size]);
      ++tail_;
    }
    not_full_.notify_one();
    try {
      run_entry(entry);
    } catch (...) {
      failure_ = std::make_shared<Failure>();
      failure_->error = std::current_exception();
    }
  }
}

void Stream::run_entry(Entry& entry) {
  if (entry.event && !entry.waits)
    entry.event->mark(entry.target, failure_);
  else if (failure_)
    return;
  else if (entry.event)
    failure_ = entry.event->await(entry.target);
  else
    entry.task();
}

void Stream::record(device::Event& event) {
  expect_no_capture("record");
  const auto& state = state_of(event);
  const auto target = state->announce();
  if (mode_ == StreamMode::inlined)
    state->mark(target, nullptr);
  else
    enqueue({.event = state, .target = target});
}

void Stream::wait(const device::Event& event) {
  expect_no_capture("wait");
  const auto& state = state_of(event);
  const auto target = state->target();
  if (mode_ == StreamMode::inlined)
    rethrow_to_host(state->await(target));
  else
    enqueue({.event = state, .target = target, .waits = true});
}

void Stream::synchronize() {
  expect_no_capture("synchronize");
  if (mode_ == StreamMode::inlined)
    return;
  record(idle_);
  idle_.wait();
}

void Stream::expect_no_capture(const char* call) const {
  TRIREME_EXPECT(!captured_, "{} on stream {} while it is captured", call, name_);
}

void Stream::begin_capture() {
  expect_no_capture("begin_capture");
  captured_.emplace();
}

std::unique_ptr<device::Graph> Stream::end_capture() {
  TRIREME_EXPECT(captured_.has_value(), "end_capture() on stream {} without begin_capture()",
                 name_);
  auto graph = std::make_unique<Graph>(std::move(*captured_));
  captured_.reset();
  return graph;
}

void Stream::launch(const std::vector<Task>& tasks) {
  expect_no_capture("launch");
  for (Task task : tasks) {
    if (mode_ == StreamMode::inlined)
      task();
    else
      enqueue({.task = task});
  }
}

Stream& stream_of(device::Stream& stream) {
  auto* mine = dynamic_cast<Stream*>(&stream);
  TRIREME_EXPECT(mine != nullptr, "a CPU stream was expected");
  return *mine;
}

}  // namespace trireme::device::cpu
