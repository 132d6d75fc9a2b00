// SPDX-License-Identifier: Apache-2.0
// The deck section `parallel`: how ranks exchange gradients and parameters. Keys change time
// and memory only, never a result, with these exceptions, which the keys' help states:
//
//   gradient_dtype, nccl_bf16_sum   bf16 rounds what travels, and NCCL the sums on the way
//   reduction, logical_shards       each adds in its own order; with reduction: sum so does each
//                                   transport and each `replicate`
//   reduce_every, shard             where each micro-step is reduced, their sums are added up in
//                                   another order
//   nccl_blocks, product_blocks     a GPU's libraries may choose other algorithms
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/key.hpp"
#include "layout/config.hpp"
#include "layout/residency.hpp"

#include "comm/config.hpp"

namespace trireme::reduce {

/// The type in which gradients are sent. They are accumulated, and the optimizer reads them, in
/// fp32.
enum class GradientDType : std::uint8_t { fp32, bf16 };

/// Number of copies (replicas) of the sharded state. none: one copy over all ranks. node: one copy
/// on each host.
enum class Replicate : std::uint8_t { none, node };

/// step: each rank adds up its micro-steps, and the sum is reduced. micro_step: every micro-step is
/// reduced, and the reduced gradients are added up.
enum class ReduceEvery : std::uint8_t { automatic, step, micro_step };

constexpr DType dtype_of(GradientDType choice) {
  return choice == GradientDType::bf16 ? DType::bf16 : DType::f32;
}

/// When ranks compare their parameters (replicas.hpp).
struct CheckReplicasConfig {
  std::int64_t every_steps = 0;
  bool at_checkpoints = true;
};

struct ParallelConfig {
  layout::Shard shard = layout::default_shard;
  NumberOr<Replicate> replicate;
  comm::Transport transport = comm::Transport::automatic;
  Or<std::int64_t> bucket_elements;
  layout::BucketOrder bucket_order = layout::BucketOrder::reverse;
  std::vector<std::string> bucket_boundaries;
  std::int64_t prefetch = layout::GatherOptions{}.prefetch;
  bool reshard_after_forward = layout::GatherOptions{}.reshard_after_forward;
  layout::Padding padding = layout::default_padding;
  comm::Reduction reduction = comm::Reduction::sum;
  Or<std::int64_t> logical_shards{.value = std::nullopt, .keyword = "none"};
  GradientDType gradient_dtype = GradientDType::fp32;
  ReduceEvery reduce_every = ReduceEvery::automatic;
  bool overlap_gradients = true;
  bool overlap_parameters = true;
  bool cached_shards = true;
  bool check_gradients = true;
  CheckReplicasConfig check_replicas;
  bool register_buffers = true;
  comm::NcclBf16Sum nccl_bf16_sum = comm::NcclBf16Sum::fp32;
  Or<std::int64_t> nccl_blocks;
  Or<std::int64_t> product_blocks;
  Duration deadline{comm::default_deadline_s};

  [[nodiscard]] bool sharded() const { return shard != layout::Shard::none; }
  /// Whether the other keys allow sharded gradients; reduce_every is not checked, its default
  /// follows `shard`.
  [[nodiscard]] bool can_shard_gradients() const {
    return reduction != comm::Reduction::tree && bucket_order == layout::BucketOrder::reverse;
  }
  /// Whether each micro-step is reduced separately.
  [[nodiscard]] bool reduces_micro_steps() const {
    return reduce_every == ReduceEvery::micro_step ||
           (reduce_every == ReduceEvery::automatic && layout::shards_gradients(shard));
  }
  /// With shard: parameters.
  [[nodiscard]] layout::GatherOptions gather_options() const {
    return {overlap_parameters ? prefetch : 0, reshard_after_forward};
  }
};

template <class V>
void describe(V& v, CheckReplicasConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Compare a hash of the parameters over all ranks every so many steps; a difference "
             "ends the run and names ranks, bucket and parameter. 0: never.",
     .min = 0});
  v("at_checkpoints", c.at_checkpoints,
    {.help = "Compare them after the first step of a start and before every checkpoint as well."});
}

/// The keys that apply to GPUs only.
template <class V>
void describe_gpu(V& v, ParallelConfig& c) {
  v("register_buffers", c.register_buffers,
    {.help = "NCCL: register gradients and parameters once, for collectives without copies."});
  v("nccl_bf16_sum", c.nccl_bf16_sum,
    {.help =
         "NCCL: who adds gradients that travel as bf16. fp32: the rank that owns a shard is sent "
         "all terms and adds them in fp32, in rank order, as on a CPU; library: NCCL, which "
         "rounds to bf16 at every rank."});
  v("nccl_blocks", c.nccl_blocks,
    {.unit = "multiprocessors",
     .help = "Multiprocessors that an NCCL collective may use; auto: NCCL chooses. NCCL may add up "
             "in another order with another number.",
     .min = 1,
     .max = 64});
  v("product_blocks", c.product_blocks,
    {.unit = "multiprocessors",
     .help = "GPU: multiprocessors available to matrix products; the rest serve collectives. auto: "
             "all. The library may choose products with other bits for another number.",
     .min = 1,
     .max = 4096});
}

/// What a rank holds, and how buckets travel between ranks.
template <class V>
void describe_ranks(V& v, ParallelConfig& c) {
  v("shard", c.shard,
    {.help =
         "State that is sharded: a rank holds only its own part of it. none: nothing; every rank "
         "holds and updates all. optimizer: master weights and moments (ZeRO-1). gradients: also "
         "gradient sums (ZeRO-2): each bucket is reduced in every micro-step, and its memory used "
         "again by the next ones; buckets have to be small beside the model. parameters: also the "
         "parameters (ZeRO-3): a layer's are gathered before its forward and its backward, and "
         "their memory is used again by the next ones. With one micro-step the bits are those of "
         "optimizer. `trireme plan` compares bytes held and sent."});
  v("replicate", c.replicate,
    {.unit = "copies",
     .help =
         "Hybrid sharding: number of copies of the state that parallel.shard divides, each divided "
         "among ranks / copies consecutive ranks. none: one copy, over all ranks. node: one on "
         "each host, so that whole buckets travel inside of hosts, and between them each rank "
         "sends only its shard of the gradients. A rank holds as many times the memory for shards. "
         "With reduction: ordered or tree whole buckets travel between all ranks, for the same "
         "bits as without copies.",
     .min = 1});
  v("transport", c.transport,
    {.help =
         "How buckets travel between ranks; auto chooses by rank placement: shared memory on one "
         "host; hierarchical where some host has several ranks, equally many or not; else "
         "mpi. With parallel.replicate, between the ranks of one copy; copies exchange messages."});
}

template <class V>
void describe_buckets(V& v, ParallelConfig& c) {
  v("bucket_elements", c.bucket_elements,
    {.unit = "elements",
     .help = "A bucket closes when it holds this many. Larger: fewer, longer collectives; smaller: "
             "more overlap; 1: one collective per parameter. auto: 40 million, or more where a "
             "rank's shard of a bucket would be less than one message (512 KiB on one host, 60 KiB "
             "between hosts, 4 MB on GPUs); never more than the model. Between hosts without GPUs, "
             "and with shard: gradients or parameters, a 16th of the model in place of 40 million, "
             "where that is less; with parameters at least a layer, and a bucket ends with a "
             "layer. Buckets of sharded gradients are held beside the shards, so they grow with "
             "the ranks only to sqrt(model x message), and memory falls with more ranks; on more "
             "than sqrt(model / message) ranks shards are less than a message then, and a larger "
             "number buys bandwidth with memory. With replicate the ranks of one copy count.",
     .min = 1});
  v("bucket_order", c.bucket_order,
    {.help =
         "reverse: buckets in the order in which backward completes them; registration: in the "
         "order of forward, so that all wait for the first. A baseline; the bits are the same."});
  v("bucket_boundaries", c.bucket_boundaries,
    {.help =
         "Names of parameters after which a bucket closes, in bucket_order, instead of at "
         "bucket_elements; `trireme plan` shows the names. A baseline; the bits are the same."});
  v("padding", c.padding,
    {.help = "What a bucket's end is padded to; aligned suits every rank count."});
}

template <class V>
void describe_sums(V& v, ParallelConfig& c) {
  v("reduction", c.reduction,
    {.help = "Order of gradient sums: sum is fastest, ordered adds in rank order, tree adds "
             "logical_shards in pairs, for the same bits on 1, 2, 4, … ranks. ordered and tree "
             "have the same bits on every transport and placement."});
  v("logical_shards", c.logical_shards,
    {.unit = "shards",
     .help = "Equal parts of the global batch that reduction: tree adds up; a power of two and a "
             "multiple of the rank count. Takes log2(logical_shards / ranks) more gradient buffers "
             "per rank.",
     .min = 1,
     .max = 1 << 24});
  v("gradient_dtype", c.gradient_dtype,
    {.help = "Type in which gradients are sent. bf16 halves the bytes and rounds each rank's "
             "gradient and the sum, not what is added up on the way; so hosts of several ranks "
             "send each other sums in fp32. One rank sends and rounds nothing. With "
             "parallel.replicate and reduction: sum the sum of each copy is rounded as well."});
  v("reduce_every", c.reduce_every,
    {.help =
         "step: gradients are reduced once, in the last micro-step. micro_step: in each of them, "
         "as "
         "without gradient accumulation; sends as many times the bytes, takes a further fp32 copy "
         "of what a rank updates, and rounds differently. auto: step, but micro_step with shard: "
         "gradients and parameters, which need it."});
}

template <class V>
void describe_overlap(V& v, ParallelConfig& c) {
  v("overlap_gradients", c.overlap_gradients, {.help = "Reduce buckets while backward runs."});
  v("overlap_parameters", c.overlap_parameters,
    {.help =
         "Gather parameters while forward, and with shard: parameters backward, already runs."});
  v("prefetch", c.prefetch,
    {.unit = "buckets",
     .help = "With shard: parameters, how many buckets are gathered ahead of the layer that "
             "computes; each takes the memory of one more. 0, or overlap_parameters: false: none.",
     .min = 0,
     .max = 1 << 16});
  v("reshard_after_forward", c.reshard_after_forward,
    {.help =
         "With shard: parameters, whether the memory of a layer's parameters is used again after "
         "its forward, so that backward gathers them once more. false: they stay whole until the "
         "optimizer writes them, so a step gathers them once, however many micro-steps it has; a "
         "rank holds all parameters then, and holds and sends as much as with shard: gradients."});
  v("cached_shards", c.cached_shards,
    {.help = "Compute shard addresses once; off: in every step."});
}

template <class V>
void describe_checks(V& v, ParallelConfig& c) {
  v("check_gradients", c.check_gradients,
    {.help = "Check for NaN and infinities before a bucket is reduced, to name the rank that made "
             "them."});
  v.section("check_replicas", c.check_replicas);
  describe_gpu(v, c);
  v("deadline", c.deadline,
    {.unit = "seconds",
     .help = "When ranks wait for others for this long and nothing moves, the run ends and names "
             "what they wait for and the ranks that are gone or late. A rank that is at work on "
             "files is waited for as long as it lives. Below 5 s a machine that stalls may end a "
             "healthy run.",
     .min = 0.0,
     .above_min = true});
}

template <class V>
void describe(V& v, ParallelConfig& c) {
  describe_ranks(v, c);
  describe_buckets(v, c);
  describe_sums(v, c);
  describe_overlap(v, c);
  describe_checks(v, c);
}

}  // namespace trireme::reduce

template <>
struct trireme::EnumNames<trireme::reduce::GradientDType> {
  using enum reduce::GradientDType;
  static constexpr std::pair<reduce::GradientDType, const char*> table[] = {{fp32, "fp32"},
                                                                            {bf16, "bf16"}};
};
template <>
struct trireme::EnumNames<trireme::reduce::Replicate> {
  using enum reduce::Replicate;
  static constexpr std::pair<reduce::Replicate, const char*> table[] = {{none, "none"},
                                                                        {node, "node"}};
};
template <>
struct trireme::EnumNames<trireme::reduce::ReduceEvery> {
  using enum reduce::ReduceEvery;
  static constexpr std::pair<reduce::ReduceEvery, const char*> table[] = {
      {automatic, "auto"}, {step, "step"}, {micro_step, "micro_step"}};
};
