// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

#include "reduce/layout_options.hpp"

#include "deck/check.hpp"

namespace trireme::deck {

namespace {

void check_copies(const JobConfig& config, const Circumstances& circumstances, Findings& findings) {
  const reduce::ParallelConfig& parallel = config.parallel;
  const bool alone = config.optimizer.outer.on();
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
  else if (circumstances.ranks > 1 &&
           parallel.replicate.number.value_or(circumstances.hosts) == circumstances.ranks &&
           findings.readable({"optimizer.outer.local_steps"}) && !alone)
    findings.say("parallel.replicate",
                 fmt::format("replicas of one rank, {} on {}, have no shards. Use fewer replicas, "
                             "or parallel.shard: none",
                             circumstances.ranks, counted(circumstances.ranks, "rank")));
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
  if (findings.readable({"optimizer.outer.local_steps"}) && config.optimizer.outer.on())
    findings.disagree(
        {{"parallel.on_lost_rank", "shrink does not support optimizer.outer.local_steps: " + needs},
         {"optimizer.outer.local_steps",
          "local steps do not support parallel.on_lost_rank = shrink: " + needs}});
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

/// Compressed gradients: whole, on every rank, in blocks of which shards have whole ones.
void check_compression(const reduce::ParallelConfig& parallel, Findings& findings) {
  if (!findings.readable({"parallel.gradient_dtype"}))
    return;
  const std::string dtype = word(parallel.gradient_dtype);
  if (!parallel.compresses()) {
    if (findings.readable({"parallel.error_feedback"}) && !parallel.error_feedback)
      findings.disagree(
          {{"parallel.error_feedback",
            "false only has an effect with parallel.gradient_dtype = int8 or fp8. Remove it."},
           {"parallel.gradient_dtype",
            dtype + " keeps no errors, which parallel.error_feedback = false needs. Use int8."}});
    return;
  }
  if (findings.readable({"parallel.shard"}) && layout::shards_gradients(parallel.shard))
    findings.disagree({{"parallel.gradient_dtype",
                        dtype +
                            " needs an error of each gradient on every rank, but "
                            "parallel.shard = " +
                            word(parallel.shard) + " keeps no whole gradients. Use bf16."},
                       {"parallel.shard", std::string(word(parallel.shard)) +
                                              " does not support parallel.gradient_dtype = " +
                                              dtype + ". Use optimizer or none."}});
  if (findings.readable({"parallel.replicate"}) &&
      (parallel.replicate.number.value_or(1) > 1 ||
       (!parallel.replicate.number && parallel.replicate.keyword == reduce::Replicate::node)))
    findings.disagree(
        {{"parallel.gradient_dtype", dtype + " does not support parallel.replicate. Use bf16."},
         {"parallel.replicate",
          "does not support parallel.gradient_dtype = " + dtype + ". Use none."}});
  if (findings.readable({"parallel.padding"}) && parallel.padding != layout::Padding::aligned)
    findings.disagree(
        {{"parallel.gradient_dtype",
          dtype + " has a scale per 64 elements, and only parallel.padding = aligned makes shards "
                  "of whole blocks"},
         {"parallel.padding", std::string(word(parallel.padding)) +
                                  " makes shards of parts of blocks, but "
                                  "parallel.gradient_dtype = " +
                                  dtype + " encodes whole ones. Use aligned."}});
}

/// optimizer.outer.local_steps: what replicas do without each other must be possible and equal.
void check_local_steps(const JobConfig& config,
                       const Circumstances& circumstances,
                       Findings& findings) {
  const std::int64_t local_steps = config.optimizer.outer.local_steps;
  const char* key = "optimizer.outer.local_steps";
  if (!findings.readable({key}) || !config.optimizer.outer.on())
    return;
  const auto refuse = [&](const char* other, const std::string& value, const std::string& why) {
    if (findings.readable({other}))
      findings.disagree(
          {{key, fmt::format("{} does not support {} = {}: {}", local_steps, other, value, why)},
           {other, fmt::format("{} does not support {} = {}: {}", value, key, local_steps, why)}});
  };
  if (config.parallel.reduction == comm::Reduction::tree)
    refuse("parallel.reduction", "tree", "its leaves are in all replicas. Use sum or ordered.");
  if (config.record.norms_every_steps > 0)
    refuse("record.norms_every_steps", std::to_string(config.record.norms_every_steps),
           "a step has several gradients, and each replica its own. Use 0.");
  if (!circumstances.trains || !findings.readable({"batch.micro_sequences"}))
    return;
  const std::int64_t unit = config.batch.micro_sequences * circumstances.ranks * local_steps;
  for (const BatchSize& size : readable_sizes(config.batch, findings.places()))
    if (size.sequences % unit != 0)
      refuse(size.path.c_str(), std::to_string(size.sequences),
             fmt::format("every local step needs equally many micro-batches on every rank. Use a "
                         "multiple of {} = {} micro_sequences x {} rank(s) x {} local steps.",
                         unit, config.batch.micro_sequences, circumstances.ranks, local_steps));
}

}  // namespace

void check_shard(const JobConfig& config, const Circumstances& circumstances, Findings& findings) {
  const reduce::ParallelConfig& parallel = config.parallel;
  check_copies(config, circumstances, findings);
  check_resharding(parallel, findings);
  check_shrinking(config, findings);
  check_compression(parallel, findings);
  check_local_steps(config, circumstances, findings);
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
