// SPDX-License-Identifier: Apache-2.0
// The transports between ranks, and the orders of sums.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::comm {

/// shared_memory: ranks of one host read each other's buckets. mpi: messages. hierarchical: shared
/// memory inside a host, messages between hosts. nccl: GPU memory.
enum class Transport : std::uint8_t { automatic, self, shared_memory, mpi, hierarchical, nccl };

/// sum: the fastest order. ordered: rank order. tree: pairs, then pairs of pairs. The last two give
/// the same bits on every transport and placement.
enum class Reduction : std::uint8_t { sum, ordered, tree };

/// How bf16 is added with NCCL. fp32: each rank receives all terms of its shard and adds them in
/// fp32, in rank order. library: NCCL adds, and rounds to bf16 at every rank.
enum class NcclBf16Sum : std::uint8_t { fp32, library };

/// Default of parallel.deadline: the longest time without progress in a collective, in seconds.
inline constexpr double default_deadline_s = 600;

}  // namespace trireme::comm
