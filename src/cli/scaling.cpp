// SPDX-License-Identifier: Apache-2.0
#include "cli/scaling.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/round_up.hpp"
#include "base/text.hpp"

#include "comm/collective/traffic.hpp"

#include "model/layers.hpp"

#include "bench/lone_step.hpp"
#include "cli/deck_plan.hpp"
#include "predict/compute_cost.hpp"
#include "predict/link_cost.hpp"
#include "text/terminal.hpp"

namespace trireme::cli {
namespace {

constexpr int most_ranks = 4096;

using predict::Numbers;
using predict::Operation;

predict::Work work_of(const deck::Deck& deck,
                      const DeckPlan& plan,
                      std::size_t dtype,
                      std::int64_t ranks_on_host) {
  const deck::JobConfig& config = deck.config;
  model::GptShape shape = deck.shape();
  shape.recompute = plan.recompute[dtype].recompute;
  const auto tokens = static_cast<double>(config.batch.micro_sequences * shape.context);
  return {.model = bench::model_text(shape),
          .precision = predict::numbers_of(plan.dtypes[dtype]),
          .threads = config.run.threads.value_or(0),
          .micro_sequences = config.batch.micro_sequences,
          .micro_step_flops = tokens * model::flops_per_token(shape),
          .ranks_on_host = ranks_on_host};
}

/// Which of the plan's dtypes was measured; the first that was, as the very work if there is one.
std::pair<std::size_t, predict::ComputeCost> compute_of(const deck::Deck& deck,
                                                        const predict::Machine& machine,
                                                        const DeckPlan& plan,
                                                        std::int64_t ranks_on_host) {
  std::pair<std::size_t, predict::ComputeCost> best;
  for (std::size_t i = 0; i < plan.dtypes.size(); ++i) {
    const auto cost = predict::find_compute(machine, work_of(deck, plan, i, ranks_on_host));
    const bool better = best.second.row == nullptr || (cost.same_work && !best.second.same_work);
    if (cost.row != nullptr && better)
      best = {i, cost};
  }
  return best;
}

predict::Wire wire_of(const deck::JobConfig& config, int ranks, int hosts) {
  comm::Transport transport = config.parallel.transport;
  if (transport == comm::Transport::automatic)
    transport = comm::transport_for(comm::Hosts::in_blocks(ranks, hosts));
  return {transport, config.parallel.reduction, ranks, hosts};
}

/// What travels, bucket by bucket, and the small exchanges.
void fill_communication(predict::StepModel& model,
                        const predict::LinkCost& cost,
                        const deck::JobConfig& config,
                        const DeckPlan& plan,
                        std::size_t dtype) {
  model.overlap_gradients = config.parallel.overlap_gradients;
  model.overlap_parameters = config.parallel.overlap_parameters;
  model.reduces_each = config.parallel.reduces_micro_steps();
  model.sharing = cost.sharing();
  model.sums_s = cost.sums_s();
  model.control_s = cost.control_s();
  const int ranks = plan.plan.ranks();
  if (ranks == 1)
    return;
  const DType wire = reduce::dtype_of(config.parallel.gradient_dtype);
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    const std::int64_t elements = plan.plan.buckets()[b].elements;
    const auto seconds = [&](Operation operation, DType type) {
      return cost.seconds(operation, predict::numbers_of(type),
                          elements * static_cast<std::int64_t>(size_bytes(type)));
    };
    model.buckets[b].reduce_s =
        seconds(plan.sharded() ? Operation::reduce_scatter : Operation::all_reduce, wire);
    if (plan.sharded())
      model.buckets[b].gather_s = seconds(Operation::all_gather, plan.dtypes[dtype]);
  }
  // Whole matrices go to their homes and back: twice what a gather of as many bytes would send.
  const std::int64_t sent = plan.budgets[dtype].matrix_wire_bytes;
  if (sent > 0)
    model.sums_s +=
        2 * cost.seconds(Operation::all_gather, Numbers::fp32, sent / 2 * ranks / (ranks - 1));
}

double matrices_part(const DeckPlan& plan) {
  if (!plan.matrices)
    return 0;
  return plan.sharded() ? plan.matrices->busiest_flops / plan.matrices->flops : 1;
}

std::optional<double> checkpoint_seconds(const predict::Machine& machine, const DeckPlan& plan) {
  if (machine.storage_bytes_per_s <= 0)
    return std::nullopt;
  const auto of_a_rank = static_cast<double>(layout::snapshot_bytes(plan.plan, plan.slots));
  return of_a_rank * plan.plan.all_ranks() / machine.storage_bytes_per_s;
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

/// Step, share of it that is exposed, and tokens per second.
std::string step_text(const std::optional<predict::StepPrediction>& step, double tokens) {
  if (!step)
    return fmt::format("{:>12}{:>9}{:>12}", "-", "-", "-");
  return fmt::format("{:>12}{:>7.1f} %{:>12}", seconds_text(step->step_s),
                     100 * step->exposed_s / step->step_s, count_text(tokens / step->step_s));
}

std::string notes_text(const Scaling& scaling) {
  const auto any = [&](auto flag) { return std::ranges::any_of(scaling.rows, flag); };
  std::string text;
  if (any(&ScalingRow::links_carried_over))
    text += "* communication was measured on another number of ranks or hosts\n";
  if (any(&ScalingRow::compute_carried_over))
    text += "+ compute was measured with another number of ranks on a host\n";
  if (any(&ScalingRow::compute_estimated))
    text += "~ compute of another model, micro-batch or number of threads, carried over by FLOP\n";
  const auto unknown = std::ranges::find_if(
      scaling.rows, [](const ScalingRow& row) { return !row.missing.empty(); });
  if (unknown != scaling.rows.end())
    text +=
        fmt::format("{} ranks: nothing was measured like {}\n", unknown->ranks, unknown->missing);
  return text;
}

std::string step_json(const std::optional<predict::StepPrediction>& step, double tokens) {
  if (!step)
    return "null";
  return fmt::format(
      "{{\"step_s\": {:.9g}, \"exposed_s\": {:.9g}, \"compute_s\": {:.9g}, \"communication_s\": "
      "{:.9g}, \"least_s\": {:.9g}, \"tokens_per_s\": {:.9g}}}",
      step->step_s, step->exposed_s, step->compute_s, step->communication_s, step->least_s(),
      tokens / step->step_s);
}

}  // namespace

ScalingRow scaling_row(const deck::Deck& deck,
                       const predict::Machine& machine,
                       int ranks,
                       int hosts,
                       std::int64_t weak_micro_steps) {
  const deck::JobConfig& config = deck.config;
  const DeckPlan plan = plan_of(deck, ranks, hosts);
  ScalingRow row;
  row.ranks = ranks;
  row.hosts = hosts;
  const auto [dtype, compute] = compute_of(deck, machine, plan, divided_up(ranks, hosts));
  const auto links = predict::LinkCost::find(machine, wire_of(config, ranks, hosts));
  row.memory_bytes = whole_bytes(plan, dtype);
  row.checkpoint_s = checkpoint_seconds(machine, plan);
  row.weak_sequences = weak_micro_steps * ranks * config.batch.micro_sequences;
  row.missing = compute.row == nullptr ? "a step in this precision" : links.missing();
  if (config.parallel.shard == layout::Shard::parameters)
    row.missing = "steps that gather layer by layer (parallel.shard: parameters)";
  if (plan.plan.replicas() > 1)
    row.missing = "sums across copies (parallel.replicate)";
  if (!row.missing.empty())
    return row;
  row.links_carried_over = links.extrapolated();
  row.compute_estimated = !compute.same_work;
  row.compute_carried_over = !compute.same_ranks;
  predict::StepModel model;
  predict::fill_compute(model, compute, plan.plan, plan.sharded(), matrices_part(plan));
  fill_communication(model, links, config, plan, dtype);
  const auto of_micro_steps = [&](std::int64_t micro_steps) {
    model.micro_steps = micro_steps;
    return predict::predict_step(model);
  };
  row.weak = of_micro_steps(weak_micro_steps);
  if (config.batch.sequences % (config.batch.micro_sequences * ranks) == 0)
    row.strong = of_micro_steps(config.batch.sequences / (config.batch.micro_sequences * ranks));
  return row;
}

Scaling scaling_of(const deck::Deck& deck,
                   const predict::Machine& machine,
                   std::vector<int> ranks,
                   int hosts) {
  const trireme::session::BatchConfig& batch = deck.config.batch;
  const int first = ranks.front();
  const std::int64_t per_host = hosts > 1 ? divided_up(first, hosts) : machine.ranks_per_host;
  const std::int64_t micro_steps = divided_up(batch.sequences, batch.micro_sequences * first);
  if (ranks.size() == 1)
    for (int power = 1; power <= most_ranks; power *= 2) ranks.push_back(power);
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  Scaling scaling{.sequences = batch.sequences, .context = deck.shape().context, .rows = {}};
  for (const int count : ranks)
    scaling.rows.push_back(scaling_row(deck, machine, count,
                                       static_cast<int>(divided_up(count, per_host)), micro_steps));
  return scaling;
}

std::string scaling_text(const Scaling& scaling) {
  std::string text = fmt::format(
      "{:>7}{:>7}{:>33}{:>33}{:>12}{:>12}\n{:>7}{:>7}{:>12}{:>9}{:>12}{:>12}{:>9}{:>12}{:>12}{:>12}"
      "\n",
      "", "", "weak: batch grows with ranks", "strong: the deck's batch", "memory", "checkpoint",
      "ranks", "hosts", "step", "exposed", "tokens/s", "step", "exposed", "tokens/s", "per rank",
      "");
  for (const ScalingRow& row : scaling.rows) {
    const auto context = static_cast<double>(scaling.context);
    text += fmt::format("{:>7}{:>7}{}{}{:>12}{:>12} {}{}{}\n", row.ranks, row.hosts,
                        step_text(row.weak, context * static_cast<double>(row.weak_sequences)),
                        step_text(row.strong, context * static_cast<double>(scaling.sequences)),
                        bytes_text(static_cast<double>(row.memory_bytes)),
                        row.checkpoint_s ? seconds_text(*row.checkpoint_s) : "-",
                        row.links_carried_over ? "*" : "", row.compute_carried_over ? "+" : "",
                        row.compute_estimated ? "~" : "");
  }
  return text + notes_text(scaling);
}

std::string scaling_json(const Scaling& scaling) {
  std::string rows;
  const auto context = static_cast<double>(scaling.context);
  for (const ScalingRow& row : scaling.rows)
    rows += fmt::format(
        "{}\n    {{\"ranks\": {}, \"hosts\": {}, \"missing\": {}, \"links_carried_over\": {}, "
        "\"compute_carried_over\": {}, \"compute_estimated\": {}, \"weak\": {}, \"strong\": {}, "
        "\"memory_bytes\": {}, \"checkpoint_s\": {}}}",
        rows.empty() ? "" : ",", row.ranks, row.hosts, text::json_string(row.missing),
        row.links_carried_over, row.compute_carried_over, row.compute_estimated,
        step_json(row.weak, context * static_cast<double>(row.weak_sequences)),
        step_json(row.strong, context * static_cast<double>(scaling.sequences)), row.memory_bytes,
        row.checkpoint_s ? fmt::format("{:.9g}", *row.checkpoint_s) : "null");
  return "[" + rows + "\n  ]";
}

}  // namespace trireme::cli
