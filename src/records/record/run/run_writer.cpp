// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_writer.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/threads.hpp"

namespace trireme::record {

RunWriter::RunWriter(RunFile file) : file_(std::move(file)) {
  thread_ = start_thread("run-writer", [this] { serve(); });
}

RunWriter::~RunWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RunWriter::write(Entry entry, std::size_t bytes) {
  std::exception_ptr also_problem;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_full(); });
    throw_problem();
    queue_.push_back({std::move(entry), bytes});
    bytes_ += bytes;
    also_problem = also_problem_;
  }
  changed_.notify_all();
  if (also_problem)
    std::rethrow_exception(also_problem);
}

bool RunWriter::full() const {
  const std::lock_guard lock(mutex_);
  return is_full();
}

RunFile& RunWriter::settled() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
  throw_problem();
  return file_;
}

void RunWriter::flush() {
  RunFile& file = settled();
  file.flush();
  if (file.also_problem())
    std::rethrow_exception(file.also_problem());
}

void RunWriter::close() {
  RunFile& file = settled();
  file.close();
  if (file.also_problem())
    std::rethrow_exception(file.also_problem());
}

void RunWriter::throw_problem() {
  if (problem_)
    std::rethrow_exception(problem_);
}

void RunWriter::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty())
      return;
    Waiting& next = queue_.front();  // stays there until it is written: the queue is empty then
    lock.unlock();
    std::exception_ptr problem, also_problem;
    try {
      next.entry(file_);
      also_problem = file_.also_problem();
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (problem) {
      problem_ = problem;
      queue_.clear();
      bytes_ = 0;
    } else {
      also_problem_ = also_problem;
      bytes_ -= next.bytes;
      queue_.pop_front();
    }
    changed_.notify_all();
  }
}

}  // namespace trireme::record
