// SPDX-License-Identifier: Apache-2.0
#include "reduce/compression.hpp"

#include "base/error.hpp"

#include "reduce/block_compression.hpp"

namespace trireme::reduce {

std::unique_ptr<Compression> make_compression(const CompressionSetup& setup) {
  TRIREME_EXPECT(setup.config.compresses() && setup.plan.replicas() == 1,
                 "compression of {} in {} replicas", word(setup.config.gradient_dtype),
                 setup.plan.replicas());
  return std::make_unique<BlockCompression>(setup);
}

CompressionBytes compression_bytes(const ParallelConfig& config, const layout::Plan& plan) {
  return config.compresses() && plan.all_ranks() > 1 ? BlockCompression::bytes(config, plan)
                                                     : CompressionBytes{};
}

std::int64_t compressed_bytes(const ParallelConfig& config,
                              const layout::Plan& plan,
                              const layout::Bucket& bucket) {
  return BlockCompression::sent_bytes(config, plan, bucket);
}

}  // namespace trireme::reduce
