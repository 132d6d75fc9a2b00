// SPDX-License-Identifier: Apache-2.0
// gradient_rank: the gradient of a matrix is sent as a product of two narrow ones. Source: Vogels,
// Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
// optimization", 2019, algorithms 1 and 2.
//
// With M [long, short] a rank's gradient plus its error (stored in either order), and Q the second
// factor of the step before:
//
//   P = M^T Q            summed over the ranks, then made orthonormal
//   Q = M P              summed over the ranks: the start of the next step
//   gradient = Q P^T     the projection of the sum of all M on the columns of P
//   error = M - M P P^T  with the rank's own Q, so all errors together are what was not sent
//
// The factors have `rank` columns (here stored as rows). Columns that say nothing are replaced by
// random ones (ops/low_rank.hpp), so Q starts at zero, and recovers from gradients that are not
// finite.
//
// 1. Only matrices whose factors have fewer elements are sent so. The others, biases and gains are
//    sent whole, with the first factors.
// 2. There are two all-reduces per bucket, in fp32 and the order of parallel.reduction; also with
//    shards, so that every rank has the whole sum.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ops/matmul.hpp"

#include "reduce/compression.hpp"

namespace trireme::reduce {

class PowerSgd final : public Compression {
 public:
  PowerSgd(const layout::Plan& plan,
           const ParallelConfig& config,
           comm::Communicator& communicator,
           device::Device& device);

  void reduce(BucketIndex bucket, View gradients, device::Stream& stream) override;
  [[nodiscard]] std::vector<Carried> carried() const override;

  static CompressionBytes bytes(const ParallelConfig& config, const layout::Plan& plan);
  static std::int64_t sent_bytes(const ParallelConfig& config,
                                 const layout::Plan& plan,
                                 const layout::Bucket& bucket);

 private:
  /// The products for matrices of one shape.
  struct Products {
    Products(device::Device& device, const std::vector<std::int64_t>& shape, std::int64_t rank);
    ops::Matmul first, second, approximation;
    bool wide;  ///< more columns than rows
    /// The matrix with the given factors.
    void multiply(View first_factor, View second_factor, View matrix, device::Stream& stream) const;
  };
  /// A parameter, with its place in the bucket.
  struct Matrix {
    std::int64_t begin = 0, elements = 0;
    const Products* products = nullptr;
    View first, second;  ///< factors: [rank, short], [rank, long]
    View error;          ///< empty without error feedback
  };
  struct Whole {
    std::int64_t begin = 0;
    View sent;
  };
  struct Bucket {
    std::vector<Matrix> matrices;
    std::vector<Whole> others;
    std::unique_ptr<comm::Shards> first, second;
  };

  /// Places the factors of the next bucket. Returns their end.
  std::int64_t place(const layout::Bucket& bucket, std::int64_t factors_begin);

  const layout::Plan& plan_;
  const std::int64_t rank_;
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Buffer errors_;   // empty without error feedback
  device::Buffer factors_;  // by bucket: the first ones, then the second ones
  std::map<std::vector<std::int64_t>, Products> products_;  // by shape
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::reduce
