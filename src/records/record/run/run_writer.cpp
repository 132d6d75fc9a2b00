// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_writer.hpp"

#include <chrono>
#include <utility>

#include "base/threads.hpp"

namespace trireme::record {
namespace {

/// How long an idle writer waits before it checks again whether a sync or run.h5 is due.
constexpr std::chrono::seconds idle_time{1};

}  // namespace

RunWriter::RunWriter(RunRecord record) : record_(std::move(record)) {
  thread_ = start_thread<std::jthread>("run-writer",
                                       [this](const std::stop_token& stop) { serve(stop); });
}

void RunWriter::write(Entry entry, std::size_t bytes) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_full(); });
    throw_problem();
    queue_.push_back({std::move(entry), bytes});
    bytes_ += bytes;
  }
  changed_.notify_all();
}

bool RunWriter::full() const {
  const std::lock_guard lock(mutex_);
  return is_full();
}

void RunWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
  throw_problem();
}

void RunWriter::throw_problem() {
  if (problem_)
    std::rethrow_exception(problem_);
}

void RunWriter::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, stop, idle_time, [this] { return !queue_.empty(); });
    if (queue_.empty() && stop.stop_requested())
      return;
    if (problem_)
      continue;
    // The entry stays in the queue until it is written.
    Waiting* const next = queue_.empty() ? nullptr : &queue_.front();
    lock.unlock();
    std::exception_ptr problem;
    try {
      if (next != nullptr)
        next->entry(record_);
      record_.do_due();
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (problem) {
      problem_ = problem;
      queue_.clear();
      bytes_ = 0;
    } else if (next != nullptr) {
      bytes_ -= next->bytes;
      queue_.pop_front();
    }
    changed_.notify_all();
  }
}

}  // namespace trireme::record
