// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include <fmt/format.h>

#include "reduce/layout_options.hpp"

#include "deck/check.hpp"

namespace trireme::deck {

namespace {

struct ShardRules : Rules {
  const reduce::ParallelConfig& parallel = config_.parallel;

  void replicas_are_possible() const {
    const bool none =
        !parallel.replicate.number && parallel.replicate.keyword == reduce::Replicate::none;
    if (none || parallel.replicate.number == 1 || !readable({"parallel.replicate"}))
      return;
    if (!parallel.sharded())
      return disagree({{"parallel.replicate", "needs parallel.shard, which is none"},
                       {"parallel.shard",
                        "none: every rank already has a full copy. Remove parallel.replicate."}});
    if (const std::string problem = reduce::replicas_problem(
            parallel, circumstances_.ranks, circumstances_.hosts, config_.optimizer.outer.on());
        !problem.empty())
      say("parallel.replicate", problem);
  }

  /// Fewer ranks must be possible.
  void ranks_can_be_lost() const {
    if (parallel.on_lost_rank != reduce::OnLostRank::shrink)
      return;
    const std::string needs = "the number of remaining ranks may not allow it";
    if (config_.batch.equal_ranks)
      disagree({{"parallel.on_lost_rank", "shrink does not support batch.equal_ranks: " + needs},
                {"batch.equal_ranks",
                 "true does not support parallel.on_lost_rank = shrink: " + needs}});
    if (config_.optimizer.outer.on())
      disagree({{"parallel.on_lost_rank",
                 "shrink does not support optimizer.outer.local_steps: " + needs},
                {"optimizer.outer.local_steps",
                 "local steps do not support parallel.on_lost_rank = shrink: " + needs}});
    if (parallel.replicate.number.value_or(1) > 1)
      disagree(
          {{"parallel.on_lost_rank",
            "shrink does not support a number of replicas: " + needs + ". Use replicate: node."},
           {"parallel.replicate",
            "a number does not support parallel.on_lost_rank = shrink: " + needs + ". Use node."}});
  }

  void parameters_can_be_kept() const {
    if (parallel.reshard_after_forward || parallel.shard == layout::Shard::parameters)
      return;
    const std::string shard = word(parallel.shard);
    disagree({{"parallel.reshard_after_forward",
               "false only has an effect with parallel.shard = parameters. With " + shard +
                   ", all ranks always have all parameters. Remove it."},
              {"parallel.shard",
               shard + " does not shard parameters, which parallel.reshard_after_forward = "
                       "false needs. Use parameters."}});
  }

  void gradients_can_be_sharded() const {
    if (!layout::shards_gradients(parallel.shard))
      return;
    const std::string shard = word(parallel.shard);
    if (parallel.reduction == comm::Reduction::tree)
      disagree({{"parallel.shard",
                 shard + " reduces every micro-step, but parallel.reduction = tree "
                         "first accumulates the micro-steps of a leaf. Use optimizer."},
                {"parallel.reduction",
                 "tree accumulates the micro-steps of a leaf, which parallel.shard = " + shard +
                     " does not support. Use ordered or sum."}});
    if (parallel.reduce_every == reduce::ReduceEvery::step)
      disagree(
          {{"parallel.shard", shard + " reduces every micro-step, but parallel.reduce_every = step "
                                      "first accumulates all of them. Use optimizer."},
           {"parallel.reduce_every",
            "step accumulates whole gradients over micro-steps, which parallel.shard = " + shard +
                " does not support. Use auto."}});
    if (parallel.bucket_order == layout::BucketOrder::registration)
      disagree(
          {{"parallel.shard",
            shard + " reuses the memory of a bucket once it is reduced, but parallel.bucket_order "
                    "= registration reduces none before the last is complete. Use optimizer."},
           {"parallel.bucket_order",
            "registration makes all buckets wait for the first, but parallel.shard = " + shard +
                " has memory only for a few. Use reverse."}});
  }

  /// Compressed gradients: whole, on every rank, in blocks of which shards have whole ones.
  void gradients_can_be_compressed() const {
    const std::string dtype = word(parallel.gradient_dtype);
    if (!parallel.compresses()) {
      if (!parallel.error_feedback)
        disagree(
            {{"parallel.error_feedback",
              "false only has an effect with parallel.gradient_dtype = int8 or fp8. Remove it."},
             {"parallel.gradient_dtype",
              dtype + " keeps no errors, which parallel.error_feedback = false needs. Use int8."}});
      return;
    }
    const std::string shard = word(parallel.shard), padding = word(parallel.padding);
    if (layout::shards_gradients(parallel.shard))
      disagree({{"parallel.gradient_dtype",
                 dtype + " needs an error of each gradient on every rank, but parallel.shard = " +
                     shard + " keeps no whole gradients. Use bf16."},
                {"parallel.shard", shard + " does not support parallel.gradient_dtype = " + dtype +
                                       ". Use optimizer or none."}});
    if (parallel.replicate.number.value_or(1) > 1 ||
        (!parallel.replicate.number && parallel.replicate.keyword == reduce::Replicate::node))
      disagree(
          {{"parallel.gradient_dtype", dtype + " does not support parallel.replicate. Use bf16."},
           {"parallel.replicate",
            "does not support parallel.gradient_dtype = " + dtype + ". Use none."}});
    if (parallel.padding != layout::Padding::aligned)
      disagree({{"parallel.gradient_dtype",
                 dtype + " has a scale per 64 elements, and only parallel.padding = aligned makes "
                         "shards of whole blocks"},
                {"parallel.padding", padding +
                                         " makes shards of parts of blocks, but "
                                         "parallel.gradient_dtype = " +
                                         dtype + " encodes whole ones. Use aligned."}});
  }

  /// optimizer.outer.local_steps: what replicas do without each other must be possible and equal.
  void steps_can_be_local() const {
    const std::int64_t local_steps = config_.optimizer.outer.local_steps;
    if (!config_.optimizer.outer.on())
      return;
    const auto refuse = [&](const std::string& other, const std::string& value,
                            const std::string& why) {
      const std::string key = "optimizer.outer.local_steps";
      disagree(
          {{key, fmt::format("{} does not support {} = {}: {}", local_steps, other, value, why)},
           {other, fmt::format("{} does not support {} = {}: {}", value, key, local_steps, why)}});
    };
    if (parallel.reduction == comm::Reduction::tree)
      refuse("parallel.reduction", "tree", "its leaves are in all replicas. Use sum or ordered.");
    if (config_.record.norms_every_steps > 0)
      refuse("record.norms_every_steps", std::to_string(config_.record.norms_every_steps),
             "a step has several gradients, and each replica its own. Use 0.");
    if (!circumstances_.trains || !readable({"batch.micro_sequences"}))
      return;
    const std::int64_t unit = config_.batch.micro_sequences * circumstances_.ranks * local_steps;
    for (const BatchSize& size : readable_sizes())
      if (size.sequences % unit != 0)
        refuse(size.path, std::to_string(size.sequences),
               fmt::format("every local step needs equally many micro-batches on every rank. Use a "
                           "multiple of {} = {} micro_sequences x {} rank(s) x {} local steps.",
                           unit, config_.batch.micro_sequences, circumstances_.ranks, local_steps));
  }
};

}  // namespace

void check_shard(const Rules& rules) {
  const ShardRules shard{rules};
  shard.replicas_are_possible();
  shard.parameters_can_be_kept();
  shard.ranks_can_be_lost();
  shard.gradients_can_be_compressed();
  shard.steps_can_be_local();
  shard.gradients_can_be_sharded();
}

}  // namespace trireme::deck
