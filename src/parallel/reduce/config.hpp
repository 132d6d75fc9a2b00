// SPDX-License-Identifier: Apache-2.0
// The deck section `parallel`: how ranks exchange gradients and parameters. Keys change time and
// memory only, never a result, unless their help says that they change rounding or the order of
// additions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/key.hpp"
#include "layout/config.hpp"
#include "layout/residency.hpp"

#include "comm/config.hpp"

namespace trireme::reduce {

/// The type in which gradients are sent. They are accumulated, and the optimizer reads them, in
/// fp32. From int8 on, blocks of elements are encoded (block_compression.hpp).
enum class GradientDType : std::uint8_t { fp32, bf16, int8, fp8, top4, top1 };

/// Number of replicas of the sharded state. none: one replica over all ranks. node: one replica on
/// each host. rank: each rank is a replica, which only local steps allow.
enum class Replicate : std::uint8_t { none, node, rank };

/// step: each rank adds up its micro-steps, and the sum is reduced. micro_step: every micro-step is
/// reduced, and the reduced gradients are added up.
enum class ReduceEvery : std::uint8_t { automatic, step, micro_step };

constexpr DType dtype_of(GradientDType choice) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::u8, DType::u8, DType::u8, DType::u8};
  return dtypes[static_cast<std::size_t>(choice)];
}

/// When ranks compare their parameters (replicas.hpp).
struct CheckReplicasConfig {
  std::int64_t every_steps = 0;
  bool at_checkpoints = true;
};

/// What the other ranks do when a rank has ended.
enum class OnLostRank : std::uint8_t { stop, shrink };

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
  Or<std::int64_t> gradient_rank{.value = std::nullopt, .keyword = "full"};
  bool error_feedback = true;
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
  OnLostRank on_lost_rank = OnLostRank::stop;

  [[nodiscard]] bool sharded() const { return shard != layout::Shard::none; }
  /// Whether the deck asks for a method of compression.hpp.
  [[nodiscard]] bool compresses() const { return encodes() || gradient_rank.given(); }
  /// Whether reductions among this many ranks use it. One rank has nothing to send, but with
  /// reduction: tree it must compute the same bits as several.
  [[nodiscard]] bool compresses_on(int ranks) const {
    return compresses() && (ranks > 1 || reduction == comm::Reduction::tree);
  }
  /// Whether gradients are sent in blocks of bytes.
  [[nodiscard]] bool encodes() const { return dtype_of(gradient_dtype) == DType::u8; }
  /// Whether the other keys allow sharded gradients; reduce_every is not checked, its default
  /// follows `shard`.
  [[nodiscard]] bool can_shard_gradients() const {
    return reduction != comm::Reduction::tree && bucket_order == layout::BucketOrder::reverse;
  }
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
     .help = "Compare a hash of the parameters over all ranks every N steps. A difference ends the "
             "run, with an error that names the ranks, the bucket and the parameter. 0: never.",
     .min = 0});
  v("at_checkpoints", c.at_checkpoints,
    {.help = "Compare them also after the first step of each start and before every checkpoint."});
}

template <class V>
void describe_gpu(V& v, ParallelConfig& c) {
  v("register_buffers", c.register_buffers,
    {.help =
         "NCCL: register the memory of gradients and parameters once, so that collectives need no "
         "copies."});
  v("nccl_bf16_sum", c.nccl_bf16_sum,
    {.help =
         "NCCL: how bf16 gradients are added. fp32: the owner of a shard receives all terms and "
         "adds them in fp32, in rank order, as on a CPU. library: NCCL adds, and rounds to bf16 at "
         "every rank."});
  v("nccl_blocks", c.nccl_blocks,
    {.unit = "multiprocessors",
     .help = "Maximum number of multiprocessors that an NCCL collective uses. auto: NCCL chooses. "
             "NCCL's order of additions may depend on it.",
     .min = 1,
     .max = 64});
  v("product_blocks", c.product_blocks,
    {.unit = "multiprocessors",
     .help = "GPU: number of multiprocessors for matrix products; the rest run collectives. auto: "
             "all. The bits of products may depend on it.",
     .min = 1,
     .max = 4096});
}

template <class V>
void describe_ranks(V& v, ParallelConfig& c) {
  v("shard", c.shard,
    {.help =
         "State that is sharded, so that a rank holds only its own part of it. none: every rank "
         "holds and updates everything. optimizer: master weights and moments (ZeRO-1). gradients: "
         "also gradients (ZeRO-2). Each bucket is reduced in every micro-step, and later buckets "
         "reuse its memory; use buckets that are small compared with the model. parameters: also "
         "the parameters (ZeRO-3). A layer's parameters are gathered before its forward and its "
         "backward, and later layers reuse their memory. With one micro-step all have the same "
         "bits as optimizer. `trireme plan` compares the bytes held and sent."});
  v("replicate", c.replicate,
    {.unit = "replicas",
     .help =
         "Hybrid sharding: number of replicas of the sharded state. Each is sharded over ranks / "
         "replicas consecutive ranks, so the shards of a rank are larger by this factor. none: one "
         "replica over all ranks. node: one on each host: whole buckets are sent inside hosts "
         "only, and between hosts each rank sends its shard of the gradients. rank: each rank. "
         "Only with local steps (optimizer.outer) replicas may have one rank or different numbers "
         "of ranks. With reduction: ordered or tree, whole buckets are sent between all ranks, for "
         "the same bits as without replicas.",
     .min = 1});
  v("transport", c.transport,
    {.help =
         "How buckets are sent between ranks. auto: nccl on GPUs; shared_memory on one host; "
         "hierarchical if any host has several ranks; else mpi. With parallel.replicate it applies "
         "inside a replica; replicas exchange messages."});
}

template <class V>
void describe_buckets(V& v, ParallelConfig& c) {
  v("bucket_elements", c.bucket_elements,
    {.unit = "elements",
     .help = "Number of elements at which a bucket closes. Larger: fewer, longer collectives. "
             "Smaller: more overlap. 1: one collective per parameter. auto: 40 million; between "
             "hosts without GPUs, and with shard: gradients or parameters, at most a 16th of the "
             "model; with shard: parameters at least a layer. auto chooses more if a rank's shard "
             "of a bucket would be less than one message (512 KiB on one host, 60 KiB between "
             "hosts, 4 MB on GPUs), but never more than the model, and with shard: gradients or "
             "parameters not more than sqrt(model x message). Raise it on more than sqrt(model / "
             "message) ranks to trade memory for bandwidth.",
     .min = 1});
  v("bucket_order", c.bucket_order,
    {.help = "Order of parameters in buckets. reverse: the order in which backward completes them. "
             "registration: the order of forward, so that all buckets wait for the first; only for "
             "comparison. The bits are the same."});
  v("bucket_boundaries", c.bucket_boundaries,
    {.help =
         "Names of parameters after which a bucket closes, instead of at bucket_elements; only for "
         "comparison. `trireme plan` shows the names. The bits are the same."});
  v("padding", c.padding,
    {.help = "How the end of a bucket is padded. aligned: shards are aligned to 128 bytes on any "
             "number of ranks. The others are for comparison."});
}

template <class V>
void describe_sums(V& v, ParallelConfig& c) {
  v("reduction", c.reduction,
    {.help =
         "Order of additions of gradients. sum: the fastest, which depends on transport and "
         "replicate. ordered: rank order. tree: logical_shards in pairs, for the same bits on any "
         "number of ranks. ordered and tree have the same bits on every transport and placement."});
  v("logical_shards", c.logical_shards,
    {.unit = "shards",
     .help = "Number of equal parts of the global batch that reduction: tree adds: a power of two "
             "that is not below the number of ranks. Ranks have equally many if their number is a "
             "power of two as well. Needs log2(logical_shards / ranks) more gradient buffers per "
             "rank.",
     .min = 1,
     .max = 1 << 24});
  v("gradient_dtype", c.gradient_dtype,
    {.help =
         "Type in which gradients are sent. bf16 halves the bytes; it rounds each rank's gradient "
         "and the sum, but not partial sums, which hosts with several ranks send in fp32. One rank "
         "rounds nothing. With parallel.replicate and reduction: sum, the sum of each replica is "
         "rounded as well. int8 and fp8 (e4m3) send a quarter, with a scale per 64 elements, for "
         "slow networks. top4 and top1 send only the 4 or the 1 largest of each 64 elements, for "
         "comparison: Adam learns much less per step with them. Most is saved with shard: none, "
         "which sends no parameters. Terms go directly to their owners, so with several ranks on a "
         "host less is saved. They need shard: none or optimizer."});
  v("gradient_rank", c.gradient_rank,
    {.help =
         "PowerSGD: send the gradient of each matrix as a product of two factors of this rank, for "
         "very slow networks. A matrix of 768 x 3072 becomes 614 times smaller with 1, 154 times "
         "with 4. It costs two passes of products over the gradients. Biases and gains are sent "
         "whole. Small ranks learn less per step: start with 16, and compare the loss at equal "
         "time "
         "with gradient_dtype: int8. With reduction: tree each logical shard has an error of its "
         "own. full: send the gradients themselves.",
     .min = 1,
     .max = 1 << 16});
  v("error_feedback", c.error_feedback,
    {.help =
         "With gradient_dtype: int8 to top1, or a gradient_rank, add what was not sent to the "
         "gradients of the next step. Needs 4 bytes per parameter and rank, also in checkpoints. A "
         "run that resumes on other ranks, or sends gradients in another way, keeps the sum of "
         "these errors. What nothing carries on is added to the first gradient, except with shard: "
         "gradients or parameters, which drop it with a warning. false: only for comparison."});
  v("reduce_every", c.reduce_every,
    {.help = "When gradients are reduced. step: once, in the last micro-step. micro_step: in each "
             "micro-step; this sends gradients in each, needs an fp32 copy of the gradients that a "
             "rank updates, and rounds differently. auto: micro_step with shard: gradients or "
             "parameters, which require it; else step."});
}

template <class V>
void describe_overlap(V& v, ParallelConfig& c) {
  v("overlap_gradients", c.overlap_gradients, {.help = "Reduce buckets while backward runs."});
  v("overlap_parameters", c.overlap_parameters,
    {.help =
         "Gather parameters while forward runs and, with shard: parameters, while backward runs."});
  v("prefetch", c.prefetch,
    {.unit = "buckets",
     .help =
         "With shard: parameters, number of buckets to gather ahead of the layer that computes. "
         "Each needs the memory of one more bucket. With overlap_parameters: false it is 0.",
     .min = 0,
     .max = 1 << 16});
  v("reshard_after_forward", c.reshard_after_forward,
    {.help =
         "With shard: parameters, reuse the memory of a layer's parameters after its forward, so "
         "that backward gathers them again. false: keep them until the optimizer updates them, so "
         "that a step gathers them once; memory and bytes sent are then those of shard: "
         "gradients."});
  v("cached_shards", c.cached_shards,
    {.help =
         "Compute the addresses of shards once, not in every step. false: only for comparison."});
}

template <class V>
void describe_checks(V& v, ParallelConfig& c) {
  v("check_gradients", c.check_gradients,
    {.help =
         "Check each bucket for NaN and infinities before it is reduced, so that an error names "
         "the rank that computed them."});
  v.section("check_replicas", c.check_replicas);
  describe_gpu(v, c);
  v("deadline", c.deadline,
    {.unit = "seconds",
     .help = "Longest wait in a collective without progress. After it the run ends with an error "
             "that names the collective and the ranks that do not answer or are late. Time that a "
             "rank spends on files does not count while it is alive. Below 5 s a machine that "
             "stalls may end a healthy run.",
     .min = 0.0,
     .above_min = true});
  v("on_lost_rank", c.on_lost_rank,
    {.help = "What to do when a rank or a host is lost. stop: end the job. shrink: the ranks that "
             "are left load the newest checkpoint and continue, with the same batch. With "
             "Open MPI 5 they do so in place (mpirun --with-ft ulfm, which jobs/mpirun.sh sets); "
             "otherwise jobs/mpirun.sh and jobs/train.sbatch start the run again on the hosts that "
             "are left."});
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
