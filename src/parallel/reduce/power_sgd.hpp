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
// The factors have `rank` columns (here stored as rows). Columns without information are replaced
// by random ones (ops/low_rank.hpp). So Q can start at zero, and it recovers from gradients that
// are not finite.
//
// With reduction: tree all of this applies to leaves instead of ranks: each leaf has an error, and
// the terms of leaves are added in pairs. So the bits do not depend on the number of ranks. A rank
// holds an error for each of its leaves, but no partial sums.
//
// 1. A matrix is sent as factors only if these have fewer elements. Other matrices, biases and
//    gains are sent whole, with the first factors.
// 2. There are two all-reduces per bucket, in fp32 and the order of parallel.reduction; also with
//    shards, so that every rank has the whole sum.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/pairwise.hpp"

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
  void begin_step(std::int64_t leaves) override { leaves_ = static_cast<std::size_t>(leaves); }
  void keep_leaf(std::int64_t leaf, View all_gradients, device::Stream& stream) override;
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
  struct Parameter {
    std::int64_t begin = 0, elements = 0;  ///< its place in the bucket
    std::int64_t flat_begin = 0;
    const Products* products = nullptr;  ///< null: it is sent whole
    View first, second;                  ///< factors: [rank, short], [rank, long]
  };
  struct Bucket {
    std::vector<Parameter> parameters;
    std::unique_ptr<comm::Shards> first, second;
  };

  /// Places the factors of the next bucket. Returns their end.
  std::int64_t place(const layout::Bucket& bucket, std::int64_t factors_begin);
  /// The error of a leaf; without error feedback the gradient itself.
  [[nodiscard]] View matrix(const Parameter& parameter, std::size_t leaf, View gradient) const;
  /// Memory for the term of a leaf: for the first leaf the sum itself.
  [[nodiscard]] View term(View sum, std::size_t leaf) const;
  void add_terms(View sum, device::Stream& stream) const;
  void make_first(const Parameter& parameter, View gradient, device::Stream& stream) const;
  void make_second(const Parameter& parameter, View gradient, device::Stream& stream) const;

  const layout::Plan& plan_;
  const std::int64_t rank_;
  const std::int64_t all_leaves_;  // of the run; 0: ranks have the errors
  const LeafRange own_leaves_;
  const std::int64_t largest_term_;
  std::size_t leaves_;  // of this rank, in this step
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Buffer errors_;   // [leaf][flat element]; empty without error feedback
  device::Buffer terms_;    // of leaves after the first
  device::Buffer factors_;  // by bucket: the first ones, then the second ones
  std::map<std::vector<std::int64_t>, Products> products_;  // by shape
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::reduce
