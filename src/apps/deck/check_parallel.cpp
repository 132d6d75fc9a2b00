// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "reduce/layout_options.hpp"

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

constexpr const char* blocks_need_alignment =
    "elements are encoded in blocks of 64, and only padding: aligned makes shards of whole blocks";

struct ParallelRules : Rules {
  const reduce::ParallelConfig& parallel = config_.parallel;

  void replicas_are_possible() const {
    const bool none =
        !parallel.replicate.number && parallel.replicate.keyword == reduce::Replicate::none;
    if (none || parallel.replicate.number == 1 || !readable({"parallel.replicate"}))
      return;
    if (!parallel.sharded())
      return conflict({"parallel.replicate", "parallel.shard"},
                      "every rank already has a full copy. Remove parallel.replicate.");
    if (const std::string problem = reduce::replicas_problem(
            parallel, circumstances_.ranks, circumstances_.hosts, config_.optimizer.outer.on());
        !problem.empty())
      say("parallel.replicate", problem);
  }

  void ranks_can_be_lost() const {
    if (parallel.on_lost_rank != reduce::OnLostRank::shrink)
      return;
    const auto refuse = [&](bool used, const char* key, const char* advice) {
      if (used)
        conflict({"parallel.on_lost_rank", key},
                 fmt::format("the number of remaining ranks may not allow it.{}", advice));
    };
    refuse(config_.batch.equal_ranks, "batch.equal_ranks", "");
    refuse(parallel.replicate.number.value_or(1) > 1 && !config_.optimizer.outer.on(),
           "parallel.replicate", " Use replicate: node or rank.");
  }

  void parameters_can_be_kept() const {
    if (!parallel.reshard_after_forward && parallel.shard != layout::Shard::parameters)
      conflict({"parallel.reshard_after_forward", "parallel.shard"},
               "all ranks always have all parameters. Remove reshard_after_forward, or use shard: "
               "parameters.");
  }

  void gradients_can_be_sharded() const {
    if (!layout::shards_gradients(parallel.shard))
      return;
    const auto refuse = [&](bool used, const char* key, const char* why) {
      if (used)
        conflict({"parallel.shard", key}, why);
    };
    refuse(parallel.reduction == comm::Reduction::tree, "parallel.reduction",
           "tree first accumulates the micro-steps of a leaf, but shards of gradients are reduced "
           "every micro-step. Use shard: optimizer, or reduction: ordered or sum.");
    refuse(parallel.reduce_every == reduce::ReduceEvery::step, "parallel.reduce_every",
           "shards of gradients are reduced every micro-step. Use shard: optimizer, or "
           "reduce_every: auto.");
    refuse(parallel.bucket_order == layout::BucketOrder::registration, "parallel.bucket_order",
           "there is memory only for a few buckets, but registration reduces none before the last "
           "is complete. Use shard: optimizer, or bucket_order: reverse.");
  }

  /// Compressed gradients: whole, on every rank, in blocks of which shards have whole ones.
  void gradients_can_be_compressed() const {
    const bool factors = parallel.gradient_rank.given();
    const auto refuse = [&](bool used, const char* key, const char* why) {
      if (used)
        conflict({factors ? "parallel.gradient_rank" : "parallel.gradient_dtype", key}, why);
    };
    if (!parallel.compresses())
      return refuse(
          !parallel.error_feedback, "parallel.error_feedback",
          "only int8, fp8, top4, top1 and gradient_rank have errors. Remove error_feedback.");
    refuse(factors && parallel.gradient_dtype != reduce::GradientDType::fp32,
           "parallel.gradient_dtype", "factors are sent in fp32. Give only one of the two.");
    if (factors && parallel.reduction == comm::Reduction::tree && !parallel.error_feedback)
      conflict({"parallel.error_feedback", "parallel.reduction"},
               "leaves are kept with their errors. Use reduction: sum or ordered.");
    refuse(layout::shards_gradients(parallel.shard), "parallel.shard",
           "each rank keeps an error of each gradient. Use gradient_dtype: bf16, or shard: "
           "optimizer or none.");
    refuse(
        parallel.replicate.number.value_or(1) > 1 ||
            (!parallel.replicate.number && parallel.replicate.keyword != reduce::Replicate::none),
        "parallel.replicate",
        "compressed gradients are exchanged by all ranks at once. Use gradient_dtype: bf16.");
    refuse(parallel.encodes() && parallel.padding != layout::Padding::aligned, "parallel.padding",
           blocks_need_alignment);
  }

  /// optimizer.outer.local_steps: what replicas do without each other must be possible and equal.
  void steps_can_be_local() const {
    const std::int64_t local_steps = config_.optimizer.outer.local_steps;
    if (!config_.optimizer.outer.on())
      return;
    const auto refuse = [&](const std::string& other, const std::string& why) {
      conflict({"optimizer.outer.local_steps", other}, why);
    };
    if (parallel.reduction == comm::Reduction::tree)
      refuse("parallel.reduction", "its leaves are in all replicas. Use sum or ordered.");
    if (config_.optimizer.outer.encodes() && parallel.padding != layout::Padding::aligned)
      conflict({"optimizer.outer.dtype", "parallel.padding"}, blocks_need_alignment);
    if (config_.record.norms_every_steps > 0)
      refuse("record.norms_every_steps",
             "a step has several gradients, and each replica its own. Use 0.");
    if (!circumstances_.trains || !readable({"batch.micro_sequences"}))
      return;
    for (const BatchSize& size : readable_sizes())
      if (size.sequences % local_steps != 0 || size.sequences / local_steps < circumstances_.ranks)
        refuse(size.path,
               fmt::format("every local step needs equally many sequences, at least one per rank. "
                           "Use a multiple of {}, from {} = {} local steps x {} rank(s) on.",
                           local_steps, local_steps * circumstances_.ranks, local_steps,
                           circumstances_.ranks));
  }

  void tree_can_grow() const {
    if (!readable({"parallel.reduction", "parallel.logical_shards"}))
      return;
    const bool tree = parallel.reduction == comm::Reduction::tree;
    if (tree != parallel.logical_shards.given())
      return conflict({"parallel.reduction", "parallel.logical_shards"},
                      tree ? "a tree needs a number of leaves"
                           : "only a tree has leaves. Use reduction: tree.");
    if (!tree)
      return;
    leaves_are_equal(*parallel.logical_shards.value);
    if (parallel.reduce_every == reduce::ReduceEvery::micro_step)
      conflict({"parallel.reduce_every", "parallel.reduction"},
               "the leaves of a step are added up first. Use reduce_every: step.");
    if (parallel.gradient_dtype != reduce::GradientDType::fp32)
      conflict({"parallel.gradient_dtype", "parallel.reduction"},
               "partial sums would round differently for different numbers of ranks, but tree "
               "guarantees the same bits. Use gradient_dtype: fp32.");
  }

  /// The noise scale compares a step with its leaves, which only exist with tree.
  void noise_has_leaves() const {
    if (!readable({"evaluate.noise_scale", "evaluate.noise_scale.every_steps", "parallel.reduction",
                   "parallel.logical_shards"}) ||
        config_.evaluate.noise_scale.every_steps == 0)
      return;
    if (parallel.reduction != comm::Reduction::tree)
      conflict(
          {"evaluate.noise_scale.every_steps", "parallel.reduction"},
          "a step is compared with its leaves, which do not depend on the number of ranks. Use "
          "reduction: tree.");
    else if (readable({"parallel.gradient_rank"}) && parallel.gradient_rank.given())
      conflict({"evaluate.noise_scale.every_steps", "parallel.gradient_rank"},
               "the leaves of a step are exact, but its gradient is compressed");
    else if (parallel.logical_shards.value_or(2) < 2)
      conflict({"evaluate.noise_scale.every_steps", "parallel.logical_shards"},
               "a step is compared with its parts, but there is only one part");
  }

  /// Every rank needs a whole subtree, and every leaf the same number of micro-steps.
  void leaves_are_equal(std::int64_t shards) const {
    const auto is_power = [](std::int64_t n) {
      return std::has_single_bit(static_cast<std::uint64_t>(n));
    };
    const std::int64_t ranks = circumstances_.ranks;
    const auto least = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(ranks)));
    if (!is_power(shards)) {
      const auto below =
          static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(shards)));
      say("parallel.logical_shards",
          fmt::format("{} is not a power of two. Use {} or {}.", shards, below, 2 * below));
      return;
    }
    if (shards < least)
      say("parallel.logical_shards",
          fmt::format("{} logical shards are too few for {} ranks. Use {} or more.", shards, ranks,
                      least));
    if (!readable({"batch.micro_sequences"}))
      return;
    const std::int64_t micro = config_.batch.micro_sequences, unit = micro * shards;
    for (const auto& [path, sequences] : readable_sizes())
      if (sequences % unit != 0)
        conflict({"parallel.logical_shards", path},
                 fmt::format("a step needs a multiple of {} = {} micro_sequences x {} logical "
                             "shards. Use {} sequences.",
                             unit, micro, shards, multiples_near(sequences, unit)));
  }
};

}  // namespace

void check_parallel(const Rules& rules) {
  const ParallelRules parallel{rules};
  parallel.tree_can_grow();
  parallel.noise_has_leaves();
  parallel.replicas_are_possible();
  parallel.parameters_can_be_kept();
  parallel.ranks_can_be_lost();
  parallel.gradients_can_be_compressed();
  parallel.steps_can_be_local();
  parallel.gradients_can_be_sharded();
}

}  // namespace trireme::deck
