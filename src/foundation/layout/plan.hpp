// SPDX-License-Identifier: Apache-2.0
// The layout of a model in memory: the position of every parameter in the flat element space, its
// bucket, and which rank owns which part. Pure arithmetic, the same on every rank, for any number
// of ranks, without MPI or a device. All code takes its addresses from one Plan object, which is
// constant after construction and may be read from any thread. `trireme plan` prints it.
//
// Positions are in elements, not bytes: gradients (fp32), parameters (fp32 or bf16), master weights
// and moments share the layout.
//
// 1. Parameters are in reverse registration order, which is the order in which backward finishes
//    them; or, for comparison, in registration order.
// 2. Every parameter starts at a multiple of 64 elements and is in one bucket.
// 3. A bucket closes when it holds bucket_elements or more, or, if boundaries are given, after each
//    of these parameters and nowhere else: the rank count does not matter. A parameter marked
//    own_bucket is alone in its bucket. With whole_groups, and without boundaries, a bucket also
//    closes at the end of a group if the whole next group does not fit into it.
// 4. A bucket's size is padded to the granule, a multiple of the rank count, so its `ranks` shards
//    are equal and contiguous. Only with Padding::none the next bucket may begin after a gap of
//    fewer than 64 elements, which rule 2 requires and which belongs to no bucket.
// 5. Rank r owns the r-th shard of every bucket. A rank may own only padding.
// 6. With replicas the state exists once per replica, in the shards of its ranks. Everywhere else in
//    layout/ a rank is one of a replica. Replicas of different sizes have plans with the same buckets
//    and different shards. What a rank of each replica owns in common can be cut into one equal part
//    per replica. Work that is done once in the run for each element (the squares of the norm,
//    writing a checkpoint) is done by the primary replica of the bucket; the replicas alternate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "layout/config.hpp"
#include "layout/replica_ranks.hpp"

namespace trireme::layout {

/// One parameter of the model, in registration order.
struct Parameter {
  std::string name;                 ///< "h.7.attn.qkv.weight"
  std::vector<std::int64_t> shape;  ///< row-major
  bool own_bucket = false;          ///< alone in its bucket: a tied embedding, which is ready last
  bool decay = false;               ///< weight decay applies (matrices, not biases and gains)
  /// For the weight of a linear layer: the number of rows of each matrix in it, such as those of
  /// queries, keys and values. Empty for all other parameters, also for embeddings and heads.
  std::vector<std::int64_t> matrices{};
  /// Number of the layer: parameters that forward and backward read together. Does not decrease in
  /// registration order.
  int group = 0;

  [[nodiscard]] std::int64_t elements() const;
};

/// Elements of all parameters, without padding.
std::int64_t total_elements(std::span<const Parameter> parameters);

struct Options {
  int ranks = 1;  ///< number of ranks of the replica
  std::int64_t bucket_elements = 40'000'000;
  Padding padding = default_padding;
  BucketOrder order = BucketOrder::reverse;
  std::vector<std::string> boundaries{};  ///< names of parameters; in any order
  bool whole_groups = false;              ///< close a bucket before a group that it cannot hold
  ReplicaRanks replicas{};                ///< of the state; default: `ranks` are one replica
};

struct Placement {
  BucketIndex bucket{};
  std::int64_t begin = 0;     ///< in the flat element space
  std::int64_t elements = 0;  ///< without padding
};

struct Bucket {
  std::int64_t begin = 0;                  ///< in the flat element space
  std::int64_t elements = 0;               ///< padded; a multiple of `ranks`
  std::int64_t unpadded = 0;               ///< start of the end padding, relative to `begin`
  std::int64_t shard_elements = 0;         ///< elements / ranks
  std::vector<ParameterIndex> parameters;  ///< in flat order (reverse registration)
};

/// The part of one parameter in one rank's shard of one bucket.
struct Piece {
  ParameterIndex parameter{};
  std::int64_t parameter_begin = 0;  ///< first element within the parameter
  std::int64_t shard_begin = 0;      ///< first element within the shard
  std::int64_t elements = 0;
};

/// A part of a shard, with the rank of the run that owns it in each replica.
struct SharedPart {
  std::int64_t begin = 0;  ///< within the shard
  std::int64_t elements = 0;
  std::vector<int> owners;
};

class Plan {
 public:
  /// Requires: at least one parameter, no parameter empty, unique names, groups in ascending order,
  /// options.ranks is the size of a replica, bucket_elements >= 1, boundaries are names of parameters.
  Plan(std::vector<Parameter> parameters, Options options);

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] int ranks() const { return options_.ranks; }
  [[nodiscard]] const ReplicaRanks& replica_ranks() const { return options_.replicas; }
  [[nodiscard]] int replicas() const { return options_.replicas.count(); }
  /// Number of ranks of the run.
  [[nodiscard]] int all_ranks() const { return options_.replicas.ranks(); }
  /// The replica of a rank of the run, and its rank there.
  [[nodiscard]] int replica_of(int rank_of_run) const { return options_.replicas.of(rank_of_run); }
  [[nodiscard]] int rank_in_replica(int rank_of_run) const {
    return rank_of_run - options_.replicas.first(replica_of(rank_of_run));
  }
  /// The replica that does the work that is done once per run for a bucket.
  [[nodiscard]] int primary_replica(BucketIndex bucket) const {
    return static_cast<int>(at(bucket) % static_cast<std::size_t>(replicas()));
  }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] const Parameter& parameter(ParameterIndex index) const {
    return parameters_[at(index)];
  }
  [[nodiscard]] const Bucket& bucket(BucketIndex index) const { return buckets_[at(index)]; }
  [[nodiscard]] const Placement& placement(ParameterIndex index) const {
    return placements_[at(index)];
  }

  /// Whether the bucket contains only one parameter, with own_bucket.
  [[nodiscard]] bool is_dedicated(const Bucket& bucket) const {
    return parameter(bucket.parameters.front()).own_bucket;
  }

  [[nodiscard]] std::int64_t granule() const { return granule_; }
  /// Elements of the whole flat space, padding included; the end of the last bucket.
  [[nodiscard]] std::int64_t flat_elements() const;
  /// Elements of all parameters, padding excluded.
  [[nodiscard]] std::int64_t parameter_elements() const;
  /// Elements of the largest bucket, padding included.
  [[nodiscard]] std::int64_t largest_bucket() const;
  /// Elements of `bucket` that belong to no parameter, between parameters and at its end.
  [[nodiscard]] std::int64_t padding(BucketIndex bucket) const;
  /// Elements that each rank owns: the sum of shard_elements.
  [[nodiscard]] std::int64_t owned_elements() const;
  /// Start of `bucket`'s shard in a rank's own buffers (master, moments), one shard after another.
  [[nodiscard]] std::int64_t owned_begin(BucketIndex bucket) const {
    return owned_begin_[at(bucket)];
  }

  /// The parts of parameters in `rank`'s shard of `bucket`, in flat order, without padding.
  [[nodiscard]] std::vector<Piece> find_pieces(BucketIndex bucket, int rank) const;
  /// The parts of parameters in the elements [begin, begin + elements) of `bucket`; shard_begin
  /// counts from `begin`. Without sharding a rank updates the pieces of the whole bucket.
  [[nodiscard]] std::vector<Piece> find_pieces(BucketIndex bucket,
                                               std::int64_t begin,
                                               std::int64_t elements) const;

  /// The parts of the shard of any rank of the run, in ascending order: one if replicas are equal.
  [[nodiscard]] std::vector<SharedPart> shared_parts(BucketIndex bucket, int rank_of_run) const;

  /// A hash of the buckets, equal for all replicas. Ranks compare it at start.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  void check_parameters() const;
  void place();
  /// With whole_groups: whether a group ends with parameter `index`, and the next one does not fit
  /// into a bucket that already holds `elements`.
  [[nodiscard]] bool ends_with_group(std::size_t index, std::int64_t elements) const;
  void close_bucket(Bucket& open, std::int64_t end);

  Options options_;
  std::int64_t granule_ = 1;
  std::vector<Parameter> parameters_;
  std::vector<Placement> placements_;
  std::vector<Bucket> buckets_;
  std::vector<std::int64_t> owned_begin_;
};

/// Parameters and buckets begin at multiples of this number of elements.
inline constexpr std::int64_t start_alignment = 64;

/// The granule of `padding` for buckets that can be cut into `parts` equal parts.
std::int64_t granule(Padding padding, std::int64_t parts);

}  // namespace trireme::layout
