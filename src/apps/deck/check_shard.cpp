// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "reduce/layout_options.hpp"

#include "deck/check.hpp"

namespace trireme::deck {

namespace {

void check_copies(const reduce::ParallelConfig& parallel,
                  const Circumstances& circumstances,
                  Findings& findings) {
  const bool none =
      !parallel.replicate.number && parallel.replicate.keyword == reduce::Replicate::none;
  if (none || parallel.replicate.number == 1 || !findings.readable({"parallel.replicate"}))
    return;
  if (findings.readable({"parallel.shard"}) && !parallel.sharded())
    findings.disagree({{"parallel.replicate", "needs parallel.shard, which is none"},
                       {"parallel.shard",
                        "none: every rank already has a full copy. Remove parallel.replicate."}});
  if (!parallel.sharded())
    return;
  if (std::string problem =
          reduce::replicas_problem(parallel, circumstances.ranks, circumstances.hosts);
      !problem.empty())
    findings.say("parallel.replicate", std::move(problem));
}

/// Fewer ranks must be possible.
void check_shrinking(const JobConfig& config, Findings& findings) {
  if (!findings.readable({"parallel.on_lost_rank"}) ||
      config.parallel.on_lost_rank != reduce::OnLostRank::shrink)
    return;
  const std::string needs = "the number of remaining ranks may not allow it";
  if (findings.readable({"batch.equal_ranks"}) && config.batch.equal_ranks)
    findings.disagree(
        {{"parallel.on_lost_rank", "shrink does not support batch.equal_ranks: " + needs},
         {"batch.equal_ranks", "true does not support parallel.on_lost_rank = shrink: " + needs}});
  if (findings.readable({"parallel.replicate"}) && config.parallel.replicate.number.value_or(1) > 1)
    findings.disagree(
        {{"parallel.on_lost_rank",
          "shrink does not support a number of replicas: " + needs + ". Use replicate: node."},
         {"parallel.replicate",
          "a number does not support parallel.on_lost_rank = shrink: " + needs + ". Use node."}});
}

void check_resharding(const reduce::ParallelConfig& parallel, Findings& findings) {
  if (parallel.reshard_after_forward || !findings.readable({"parallel.reshard_after_forward"}) ||
      !findings.readable({"parallel.shard"}) || parallel.shard == layout::Shard::parameters)
    return;
  const std::string shard = word(parallel.shard);
  findings.disagree({{"parallel.reshard_after_forward",
                      "false only has an effect with parallel.shard = parameters. With " + shard +
                          ", all ranks always have all parameters. Remove it."},
                     {"parallel.shard",
                      shard + " does not shard parameters, which parallel.reshard_after_forward = "
                              "false needs. Use parameters."}});
}

}  // namespace

void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings) {
  const reduce::ParallelConfig& parallel = config.parallel;
  check_copies(parallel, circumstances, findings);
  check_resharding(parallel, findings);
  check_shrinking(config, findings);
  if (!findings.readable({"parallel.shard"}) || !layout::shards_gradients(parallel.shard))
    return;
  const std::string shard = word(parallel.shard);
  if (findings.readable({"parallel.reduction"}) && parallel.reduction == comm::Reduction::tree)
    findings.disagree(
        {{"parallel.shard", shard + " reduces every micro-step, but parallel.reduction = tree "
                                    "first accumulates the micro-steps of a leaf. Use optimizer."},
         {"parallel.reduction",
          "tree accumulates the micro-steps of a leaf, which parallel.shard = " + shard +
              " does not support. Use ordered or sum."}});
  if (findings.readable({"parallel.reduce_every"}) &&
      parallel.reduce_every == reduce::ReduceEvery::step)
    findings.disagree(
        {{"parallel.shard", shard + " reduces every micro-step, but parallel.reduce_every = step "
                                    "first accumulates all of them. Use optimizer."},
         {"parallel.reduce_every",
          "step accumulates whole gradients over micro-steps, which parallel.shard = " + shard +
              " does not support. Use auto."}});
  if (findings.readable({"parallel.bucket_order"}) &&
      parallel.bucket_order == layout::BucketOrder::registration)
    findings.disagree(
        {{"parallel.shard",
          shard + " reuses the memory of a bucket once it is reduced, but parallel.bucket_order = "
                  "registration reduces none before the last is complete. Use optimizer."},
         {"parallel.bucket_order",
          "registration makes all buckets wait for the first, but parallel.shard = " + shard +
              " has memory only for a few. Use reverse."}});
}

}  // namespace trireme::deck
