// SPDX-License-Identifier: Apache-2.0
// Scratch memory by named leases.
//
// A lease is known by (name, dtype); it returns itself when it goes out of scope. Each (name,
// dtype) keeps its own block, which only grows, geometrically, while the pool is warming up. After
// freeze() growth is our bug: the plan should have known.
//
// 1. One lease per name at a time; a second one is a ContractError naming it (scratch used twice at
//    once).
// 2. The bytes of a lease are undefined; with `poison` they are NaN, so that code that reads before
//    writing is found out.
// 3. The step path neither allocates nor searches long: names are looked up in a small flat list.
// 4. Not thread-safe: one host thread leases; streams order the use, and a lease is bound to the
//    stream it was taken on. Its block may be leased again at once, because the next user enqueues
//    on the same stream.
// 5. Memory goes back only when the stream is done with it: growing a block, and with `pooled` off
//    the end of every lease, wait for the lease's stream. Streams outlive their leases.
//
// With `pooled` off every lease allocates and frees, for measuring what the pool buys.
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

/// How many times as large a block gets that is too small, at least. Below the golden ratio, the
/// blocks that were given back can in time hold the next one; a factor of 2 never lets them. What
/// is taken beyond the largest request is at most half of it. Measured with `trireme bench pool`
/// (docs/figures.md): against 2, some more growths while the pool warms up, none later.
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

  /// From now on growth is a ContractError.
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
