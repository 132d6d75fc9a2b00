// SPDX-License-Identifier: Apache-2.0
// Sums the bf16 terms of one shard on the GPU in fp32; NCCL's own sum would round at every rank.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "device/cuda/raw_stream.hpp"

namespace trireme::comm {

/// own[i] = the sum over all ranks in rank order, in fp32, rounded once. Shapes: own = [count],
/// this rank's terms; others = [ranks, stride], row r has the terms of rank r, and this rank's row
/// is not read. Enqueued on `stream`.
void sum_bf16_terms(Bf16* own,
                    const Bf16* others,
                    std::int64_t stride,
                    std::int64_t count,
                    int rank,
                    int ranks,
                    device::cuda::RawStream stream);

}  // namespace trireme::comm
