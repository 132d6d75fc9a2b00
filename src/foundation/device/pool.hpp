// SPDX-License-Identifier: Apache-2.0
// A pool of scratch memory, used by named leases.
//
// A lease is identified by (name, dtype), and ends when it goes out of scope. Each (name, dtype)
// has its own block, which grows geometrically during warm-up. Growth after freeze() is a
// ContractError.
//
// 1. One lease per name at a time; a second one is a ContractError that names it.
// 2. The content of a lease is undefined; with `poison` it is NaN, so that tests detect reads
//    before writes.
// 3. A step does not allocate; names are looked up in a small flat list.
// 4. Not thread-safe: one host thread leases, and a lease belongs to one stream. Its block may be
//    leased again at once, because the next user enqueues on the same stream.
// 5. Memory is freed only when the stream has finished using it: growing a block, and with `pooled`
//    off the end of every lease, wait for the lease's stream. Streams outlive their leases.
//
// With `pooled` off every lease allocates and frees memory, to measure the gain of the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.hpp"

namespace trireme::device {

class ScratchPool;

class Lease {
 public:
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  [[nodiscard]] View view() const { return view_; }

 private:
  friend class ScratchPool;
  Lease(ScratchPool& pool, std::size_t block, View view)
      : pool_(&pool), block_(block), view_(view) {}

  ScratchPool* pool_;
  std::size_t block_;
  View view_;
};

/// Minimum factor by which a block grows. Below the golden ratio, freed blocks can together hold a
/// later one; with a factor of 2 they never can. At most half of the largest request is unused.
/// Measured by tests/bench/parts.cpp (docs/results/engine.csv): compared with 2, a block grows
/// slightly more often during warm-up, and not later.
inline constexpr double growth_factor = 1.5;

class ScratchPool {
 public:
  struct Options {
    bool pooled = true;
    bool poison = false;
    double growth = growth_factor;  ///< other factors are for measuring
  };
  struct Usage {
    std::string name;
    std::size_t high_water_bytes = 0;
  };

  ScratchPool(Device& device, Options options) : device_(device), options_(options) {}

  /// `elements` of `dtype` under `name`, to be used on `stream`.
  Lease lease(std::string_view name, DType dtype, std::int64_t elements, Stream& stream);

  void freeze() { frozen_ = true; }

  /// Allocations since construction; constant after warm-up when pooled.
  [[nodiscard]] std::uint64_t num_allocations() const { return num_allocations_; }
  [[nodiscard]] std::size_t allocated_bytes() const;
  [[nodiscard]] std::vector<Usage> usage() const;

 private:
  friend class Lease;
  struct Block {
    std::string name;
    DType dtype;
    Stream* stream = nullptr;
    Buffer buffer;
    std::size_t high_water_bytes = 0;
    bool leased = false;
  };
  void give_back(std::size_t block) noexcept;

  Device& device_;
  const Options options_;
  std::vector<Block> blocks_;
  std::uint64_t num_allocations_ = 0;
  bool frozen_ = false;
};

}  // namespace trireme::device
