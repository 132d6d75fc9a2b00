// SPDX-License-Identifier: Apache-2.0
// The World of ranks that are threads of one process (thread_ranks.hpp): each rank publishes the
// address of its values, and all ranks read them between two barriers.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::testing {

/// The state that the ranks' worlds share.
class WorldHub {
 public:
  explicit WorldHub(int size)
      : size_(size),
        integers_(static_cast<std::size_t>(size)),
        doubles_(static_cast<std::size_t>(size)),
        texts_(static_cast<std::size_t>(size)),
        control_(size) {}

  [[nodiscard]] int size() const { return size_; }

 private:
  friend class ThreadWorld;

  int size_;
  std::vector<std::span<std::int64_t>> integers_;
  std::vector<std::span<const double>> doubles_;
  std::vector<const std::string*> texts_;
  std::barrier<> control_;
};

class ThreadWorld final : public comm::World {
 public:
  ThreadWorld(WorldHub& hub, int rank) : hub_(hub), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return hub_.size(); }
  [[nodiscard]] int local_rank() const override { return rank_; }
  [[nodiscard]] int local_size() const override { return hub_.size(); }
  [[nodiscard]] const std::string& host() const override { return host_; }

  void barrier() override { hub_.control_.arrive_and_wait(); }
  void sum(std::span<std::int64_t> values) override {
    combine(values, [](std::int64_t a, std::int64_t b) { return a + b; });
  }
  void max(std::span<std::int64_t> values) override {
    combine(values, [](std::int64_t a, std::int64_t b) { return a > b ? a : b; });
  }
  std::vector<double> gather_all(std::span<const double> values) override {
    hub_.doubles_[at_rank()] = values;
    barrier();
    std::vector<double> all;
    for (const auto& part : hub_.doubles_) all.insert(all.end(), part.begin(), part.end());
    barrier();
    return all;
  }
  std::vector<std::string> gather_all(const std::string& text) override {
    hub_.texts_[at_rank()] = &text;
    barrier();
    std::vector<std::string> all;
    for (const std::string* part : hub_.texts_) all.push_back(*part);
    barrier();
    return all;
  }
  std::string broadcast(std::string bytes, int root) override {
    return gather_all(bytes)[static_cast<std::size_t>(root)];
  }
  [[noreturn]] void abort(ExitCode code) noexcept override { std::exit(static_cast<int>(code)); }

 private:
  [[nodiscard]] std::size_t at_rank() const { return static_cast<std::size_t>(rank_); }

  template <class F>
  void combine(std::span<std::int64_t> values, F two) {
    hub_.integers_[at_rank()] = values;
    barrier();
    std::vector<std::int64_t> result(hub_.integers_[0].begin(), hub_.integers_[0].end());
    for (std::size_t r = 1; r < hub_.integers_.size(); ++r)
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = two(result[i], hub_.integers_[r][i]);
    barrier();
    std::copy(result.begin(), result.end(), values.begin());
    barrier();
  }

  WorldHub& hub_;
  int rank_;
  std::string host_ = "threads";
};

}  // namespace trireme::testing
