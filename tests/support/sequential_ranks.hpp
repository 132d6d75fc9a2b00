// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process, one running at a time: for tests of collective code over libraries
// that are not thread-safe (HDF5). A rank runs until it enters a collective or returns; then the
// next one that can continue does.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::test {

class SequentialRanks {
 public:
  explicit SequentialRanks(int ranks, int ranks_per_host = 0)
      : ranks_(ranks),
        ranks_per_host_(ranks_per_host > 0 ? ranks_per_host : ranks),
        texts_(static_cast<std::size_t>(ranks)) {}

  /// Runs `body` as every rank and rethrows the exception of the lowest rank that threw. A body
  /// that throws between collectives while others wait is a broken test and would hang: the bodies
  /// must end the same way on all ranks.
  void run(const std::function<void(comm::World&)>& body) {
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([&, rank] {
        const std::lock_guard lock(mutex_);
        Member world(*this, rank);
        try {
          body(world);
        } catch (...) {
          thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& one : thrown)
      if (one)
        std::rethrow_exception(one);
  }

 private:
  class Member final : public comm::World {
   public:
    Member(SequentialRanks& group, int rank) : group_(group), rank_(rank) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return group_.ranks_; }
    [[nodiscard]] int local_rank() const override { return rank_ % group_.ranks_per_host_; }
    [[nodiscard]] int local_size() const override { return group_.ranks_per_host_; }
    [[nodiscard]] const std::string& host() const override { return host_; }
    void barrier() override { group_.exchange(rank_, ""); }
    void sum(std::span<std::int64_t> values) override {
      combine(values, [](std::int64_t a, std::int64_t b) { return a + b; });
    }
    void max(std::span<std::int64_t> values) override {
      combine(values, [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
    }
    std::vector<double> gather_all(std::span<const double> values) override {
      std::vector<double> all;
      for (const std::string& part : group_.exchange(rank_, bytes_of(values)))
        for (std::size_t i = 0; i < values.size(); ++i)
          all.push_back(reinterpret_cast<const double*>(part.data())[i]);
      return all;
    }
    std::vector<std::string> gather_all(const std::string& text) override {
      return group_.exchange(rank_, text);
    }
    std::string broadcast(std::string bytes, int root) override {
      return group_.exchange(rank_, bytes)[static_cast<std::size_t>(root)];
    }
    [[noreturn]] void abort(ExitCode code) noexcept override { std::_Exit(static_cast<int>(code)); }

   private:
    template <class T>
    static std::string bytes_of(std::span<T> values) {
      return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
    }
    template <class Combine>
    void combine(std::span<std::int64_t> values, Combine&& combine_two) {
      const auto all = group_.exchange(rank_, bytes_of(values));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = reinterpret_cast<const std::int64_t*>(all[0].data())[i];
        for (std::size_t r = 1; r < all.size(); ++r)
          values[i] =
              combine_two(values[i], reinterpret_cast<const std::int64_t*>(all[r].data())[i]);
      }
    }
    SequentialRanks& group_;
    int rank_;
    std::string host_ = "testhost" + std::to_string(rank_ / group_.ranks_per_host_);
  };

  /// Called with the mutex locked; unlocks it until all ranks have arrived.
  std::vector<std::string> exchange(int rank, const std::string& text) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    texts_[static_cast<std::size_t>(rank)] = text;
    const auto round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      gathered_ = texts_;
      ++round_;
      everyone_.notify_all();
    } else {
      everyone_.wait(lock, [&] { return round_ != round; });
    }
    auto result = gathered_;
    lock.release();  // the caller keeps the mutex locked
    return result;
  }

  int ranks_, ranks_per_host_;
  std::mutex mutex_;
  std::condition_variable everyone_;
  std::vector<std::string> texts_, gathered_;
  int arrived_ = 0;
  long round_ = 0;
};

}  // namespace trireme::test
