// SPDX-License-Identifier: Apache-2.0
#include "deck/check_shard.hpp"

namespace trireme::deck {

void check_shard(const JobConfig& config, Findings& findings) {
  const trireme::reduce::ParallelConfig& parallel = config.parallel;
  if (!findings.readable({"parallel.shard"}) || parallel.shard != trireme::layout::Shard::gradients)
    return;
  if (findings.readable({"parallel.reduction"}) &&
      parallel.reduction == trireme::comm::Reduction::tree)
    findings.disagree(
        {{"parallel.shard",
          "gradients reduces every micro-step by itself, and parallel.reduction = tree adds up the "
          "micro-steps of a leaf before; optimizer works"},
         {"parallel.reduction",
          "tree adds up the micro-steps of a leaf, which parallel.shard = gradients does not keep; "
          "ordered and sum work"}});
  if (findings.readable({"parallel.reduce_every"}) &&
      parallel.reduce_every == trireme::reduce::ReduceEvery::step)
    findings.disagree(
        {{"parallel.shard",
          "gradients keeps nothing of a micro-step but sums over the ranks, and "
          "parallel.reduce_every = step adds micro-steps up before; optimizer works"},
         {"parallel.reduce_every",
          "step needs whole gradients from micro-step to micro-step, which parallel.shard = "
          "gradients does not keep; auto works"}});
  if (findings.readable({"parallel.bucket_order"}) &&
      parallel.bucket_order == trireme::layout::BucketOrder::registration)
    findings.disagree(
        {{"parallel.shard",
          "gradients uses the memory of a bucket again when it is reduced, and "
          "parallel.bucket_order = registration reduces none before the last is complete; "
          "optimizer works"},
         {"parallel.bucket_order",
          "registration lets all buckets wait for the first, and parallel.shard = gradients has "
          "memory for a few; reverse works"}});
}

}  // namespace trireme::deck
