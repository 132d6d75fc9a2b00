// SPDX-License-Identifier: Apache-2.0
#include "deck/check_shard.hpp"

#include <string>
#include <utility>

#include "reduce/layout_options.hpp"

namespace trireme::deck {

namespace {

void check_copies(const trireme::reduce::ParallelConfig& parallel,
                  const Circumstances& circumstances,
                  Findings& findings) {
  const bool none =
      !parallel.replicate.number && parallel.replicate.keyword == trireme::reduce::Replicate::none;
  if (none || parallel.replicate.number == 1 || !findings.readable({"parallel.replicate"}))
    return;
  if (findings.readable({"parallel.shard"}) && !parallel.sharded())
    findings.disagree({{"parallel.replicate",
                        "makes copies of what is held in shards, and parallel.shard is none"},
                       {"parallel.shard",
                        "none: every rank holds everything, of which parallel.replicate cannot "
                        "make copies; leave that out"}});
  if (!parallel.sharded())
    return;
  if (std::string problem =
          trireme::reduce::replicas_problem(parallel, circumstances.ranks, circumstances.hosts);
      !problem.empty())
    findings.say("parallel.replicate", std::move(problem));
}

void check_resharding(const trireme::reduce::ParallelConfig& parallel, Findings& findings) {
  if (parallel.reshard_after_forward || !findings.readable({"parallel.reshard_after_forward"}) ||
      !findings.readable({"parallel.shard"}) ||
      parallel.shard == trireme::layout::Shard::parameters)
    return;
  const std::string shard = word(parallel.shard);
  findings.disagree(
      {{"parallel.reshard_after_forward",
        "false keeps parameters whole that parallel.shard = parameters has in shards, and with " +
            shard + " they are whole at any time; leave it out"},
       {"parallel.shard",
        shard + " has no parameters in shards, and parallel.reshard_after_forward = false is about "
                "those; parameters works"}});
}

}  // namespace

void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings) {
  const trireme::reduce::ParallelConfig& parallel = config.parallel;
  check_copies(parallel, circumstances, findings);
  check_resharding(parallel, findings);
  if (!findings.readable({"parallel.shard"}) || !trireme::layout::shards_gradients(parallel.shard))
    return;
  const std::string shard = word(parallel.shard);
  if (findings.readable({"parallel.reduction"}) &&
      parallel.reduction == trireme::comm::Reduction::tree)
    findings.disagree(
        {{"parallel.shard",
          shard + " reduces every micro-step by itself, and parallel.reduction = tree adds up the "
                  "micro-steps of a leaf before; optimizer works"},
         {"parallel.reduction", "tree adds up the micro-steps of a leaf, which parallel.shard = " +
                                    shard + " does not keep; ordered and sum work"}});
  if (findings.readable({"parallel.reduce_every"}) &&
      parallel.reduce_every == trireme::reduce::ReduceEvery::step)
    findings.disagree(
        {{"parallel.shard",
          shard + " keeps nothing of a micro-step but sums over the ranks, and "
                  "parallel.reduce_every = step adds micro-steps up before; optimizer works"},
         {"parallel.reduce_every",
          "step needs whole gradients from micro-step to micro-step, which parallel.shard = " +
              shard + " does not keep; auto works"}});
  if (findings.readable({"parallel.bucket_order"}) &&
      parallel.bucket_order == trireme::layout::BucketOrder::registration)
    findings.disagree(
        {{"parallel.shard",
          shard + " uses the memory of a bucket again when it is reduced, and "
                  "parallel.bucket_order = registration reduces none before the last is complete; "
                  "optimizer works"},
         {"parallel.bucket_order",
          "registration lets all buckets wait for the first, and parallel.shard = " + shard +
              " has memory for a few; reverse works"}});
}

}  // namespace trireme::deck
