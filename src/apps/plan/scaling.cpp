// SPDX-License-Identifier: Apache-2.0
#include "plan/scaling.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/round_up.hpp"
#include "base/text.hpp"

#include "model/layers.hpp"

#include "comm/collective/hosts.hpp"
#include "reduce/layout_options.hpp"

#include "session/rank_memory.hpp"

#include "plan/bucket_traffic.hpp"
#include "plan/compute_cost.hpp"
#include "plan/deck_plan.hpp"

namespace trireme::plan {
namespace {

constexpr int most_ranks = 4096;

Work work_of(const deck::Deck& deck,
             const DeckPlan& plan,
             std::size_t dtype,
             std::int64_t ranks_on_host) {
  const deck::JobConfig& config = deck.config;
  model::GptShape shape = deck.shape();
  shape.recompute = plan.recompute[dtype].recompute;
  const auto tokens = static_cast<double>(config.batch.micro_sequences * shape.context);
  return {.model = model_text(shape),
          .precision = numbers_of(plan.dtypes[dtype]),
          .threads = config.run.threads.value_or(0),
          .micro_sequences = config.batch.micro_sequences,
          .micro_step_flops = tokens * model::flops_per_token(shape),
          .ranks_on_host = ranks_on_host};
}

/// Which of the plan's dtypes was measured; the first that was, as the very work if there is one.
std::pair<std::size_t, ComputeCost> compute_of(const deck::Deck& deck,
                                               const Machine& machine,
                                               const DeckPlan& plan,
                                               std::int64_t ranks_on_host) {
  std::pair<std::size_t, ComputeCost> best;
  for (std::size_t i = 0; i < plan.dtypes.size(); ++i) {
    const auto cost = find_compute(machine, work_of(deck, plan, i, ranks_on_host));
    const bool better = best.second.row == nullptr || (cost.same_work && !best.second.same_work);
    if (cost.row != nullptr && better)
      best = {i, cost};
  }
  return best;
}

/// In an update whole matrices are sent to their owners and back, which takes twice as long as a
/// gather of as many bytes.
double matrices_seconds(const BucketTraffic& traffic, const DeckPlan& plan) {
  const std::int64_t sent = plan.matrices ? plan.matrices->sent_bytes : 0;
  const int ranks = plan.plan.ranks();
  if (sent == 0 || ranks == 1)
    return 0;
  return 2 * traffic.gather_seconds(Numbers::fp32, sent / 2 * ranks / (ranks - 1));
}

double matrices_part(const DeckPlan& plan) {
  if (!plan.matrices)
    return 0;
  return plan.sharded() ? plan.matrices->busiest_flops / plan.matrices->flops : 1;
}

std::optional<double> checkpoint_seconds(const Machine& machine, const DeckPlan& plan) {
  if (machine.storage_bytes_per_s <= 0)
    return std::nullopt;
  const auto of_a_rank = static_cast<double>(layout::snapshot_bytes(plan.plan, plan.slots));
  const auto tensors = static_cast<double>(plan.plan.parameters().size() * plan.slots.size());
  return machine.storage_latency_s + machine.storage_tensor_s * tensors +
         of_a_rank * plan.plan.all_ranks() / machine.storage_bytes_per_s;
}

/// `local_steps` updates like `update`, then an average of the replicas that overlaps with nothing.
StepPrediction with_local_steps(const StepPrediction& update,
                                std::int64_t local_steps,
                                double average_s,
                                std::int64_t average_bytes) {
  const auto times = static_cast<double>(local_steps);
  return {.step_s = times * update.step_s + average_s,
          .exposed_s = times * update.exposed_s + average_s,
          .compute_s = times * update.compute_s,
          .communication_s = times * update.communication_s + average_s,
          .exchanges_s = times * update.exchanges_s + average_s,
          .sent_bytes = local_steps * update.sent_bytes + average_bytes};
}

/// Step, share of it that is exposed, and tokens per second.
std::string step_text(const std::optional<StepPrediction>& step, double tokens) {
  if (!step)
    return fmt::format("{:>12}{:>9}{:>12}", "-", "-", "-");
  return fmt::format("{:>12}{:>7.1f} %{:>12}", step_time_text(step->step_s),
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
    text += "~ compute of another model, micro-batch or number of threads, scaled by FLOP\n";
  if (any(&ScalingRow::encoding_left_out))
    text += "# communication of fp32 with as many bytes; the time to compress is not included\n";
  const auto unknown = std::ranges::find_if(
      scaling.rows, [](const ScalingRow& row) { return !row.missing.empty(); });
  if (unknown != scaling.rows.end())
    text += fmt::format("{}: {}\n", counted(unknown->ranks, "rank"), unknown->missing);
  return text;
}

Json step_json(const std::optional<StepPrediction>& step, double tokens) {
  if (!step)
    return {};
  return {{"step_s", step->step_s},        {"exposed_s", step->exposed_s},
          {"compute_s", step->compute_s},  {"communication_s", step->communication_s},
          {"least_s", step->least_s()},    {"tokens_per_s", tokens / step->step_s},
          {"sent_bytes", step->sent_bytes}};
}

}  // namespace

ScalingRow scaling_row(const deck::Deck& deck,
                       const Machine& machine,
                       int ranks,
                       int hosts,
                       std::int64_t weak_micro_steps) {
  const deck::JobConfig& config = deck.config;
  ScalingRow row;
  row.ranks = ranks;
  row.hosts = hosts;
  if (const auto problem =
          reduce::replicas_problem(config.parallel, ranks, hosts, config.optimizer.outer.on());
      config.parallel.sharded() && !problem.empty()) {
    row.missing = "parallel.replicate: " + problem;
    return row;
  }
  if (const std::int64_t shards = config.parallel.logical_shards.value_or(0);
      config.parallel.reduction == comm::Reduction::tree && shards < ranks) {
    row.missing =
        fmt::format("parallel.logical_shards: {} shards for {}", shards, counted(ranks, "rank"));
    return row;
  }
  const DeckPlan plan = plan_of(deck, ranks, hosts);
  if (!plan.plan.replica_ranks().equal()) {
    row.missing = "parallel.replicate: " + plan.plan.replica_ranks().text() +
                  ", which are predicted only with the same number of ranks";
    return row;
  }
  const auto [dtype, compute] = compute_of(deck, machine, plan, divided_up(ranks, hosts));
  const auto options =
      session::budget_options(config, plan.plan, {plan.dtypes[dtype], plan.device});
  const std::int64_t averaged_bytes =
      options.averaged_bytes + plan.plan.owned_elements() * (plan.plan.ranks() - 1) *
                                   static_cast<std::int64_t>(size_bytes(options.parameter_dtype));
  const BucketTraffic traffic(machine, plan.plan, options,
                              wires_of(comm::Hosts::in_blocks(ranks, hosts), plan.plan.replicas(),
                                       plan.transport, reduction_of(config)));
  row.memory_bytes = whole_bytes(plan, dtype);
  row.checkpoint_s = checkpoint_seconds(machine, plan);
  row.weak_sequences = weak_micro_steps * ranks * config.batch.micro_sequences;
  const std::string unknown =
      compute.row == nullptr ? "a step in this precision" : traffic.missing();
  if (!unknown.empty()) {
    row.missing = "nothing was measured like " + unknown;
    return row;
  }
  row.links_carried_over = traffic.extrapolated();
  row.compute_estimated = !compute.same_work;
  row.compute_carried_over = !compute.same_ranks;
  row.encoding_left_out = plan.plan.all_ranks() > 1 &&
                          (config.parallel.compresses() || config.optimizer.outer.encodes());
  if (plan.budgets[dtype].copies_bytes > 0)
    row.memory_copy_s =
        traffic.copy_s(layout::snapshot_bytes(plan.plan, plan.slots), divided_up(ranks, hosts));
  StepModel model;
  model.overlap_gradients = config.parallel.overlap_gradients;
  model.overlap_parameters = config.parallel.overlap_parameters;
  fill_compute(model, compute, plan.plan, plan.sharded(), matrices_part(plan));
  traffic.fill(model);
  model.sums_s += matrices_seconds(traffic, plan);
  const auto of_micro_steps = [&](std::int64_t micro_steps) {
    const std::int64_t local_steps = config.optimizer.outer.local_steps;
    model.micro_steps = divided_up(micro_steps, local_steps);
    StepPrediction step = predict_step(model);
    if (local_steps > 1)
      step = with_local_steps(step, local_steps, traffic.average_seconds(), averaged_bytes);
    return step;
  };
  row.weak = of_micro_steps(weak_micro_steps);
  row.strong =
      of_micro_steps(session::batches_of(config, config.batch.sequences, ranks).micro_steps());
  return row;
}

Scaling scaling_of(const deck::Deck& deck,
                   const Machine& machine,
                   std::vector<int> ranks,
                   int hosts) {
  const session::BatchConfig& batch = deck.config.batch;
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
  const bool copies = std::ranges::any_of(
      scaling.rows, [](const ScalingRow& row) { return row.memory_copy_s.has_value(); });
  std::string text = fmt::format(
      "{:>7}{:>7}{:>33}{:>33}{:>12}{:>12}{}\n{:>7}{:>7}{:>12}{:>9}{:>12}{:>12}{:>9}{:>12}{:>12}"
      "{:>12}{}\n",
      "", "", "weak: batch grows with ranks", "strong: the deck's batch", "memory", "checkpoint",
      copies ? "     copy in" : "", "ranks", "hosts", "step", "exposed", "tokens/s", "step",
      "exposed", "tokens/s", "per rank", "", copies ? "      memory" : "");
  const auto seconds = [](const std::optional<double>& value) {
    return fmt::format("{:>12}", value ? step_time_text(*value) : "-");
  };
  for (const ScalingRow& row : scaling.rows) {
    const auto context = static_cast<double>(scaling.context);
    text += fmt::format("{:>7}{:>7}{}{}{:>12}{}{} {}{}{}{}\n", row.ranks, row.hosts,
                        step_text(row.weak, context * static_cast<double>(row.weak_sequences)),
                        step_text(row.strong, context * static_cast<double>(scaling.sequences)),
                        row.memory_bytes ? bytes_text(*row.memory_bytes) : "-",
                        seconds(row.checkpoint_s), copies ? seconds(row.memory_copy_s) : "",
                        row.links_carried_over ? "*" : "", row.compute_carried_over ? "+" : "",
                        row.compute_estimated ? "~" : "", row.encoding_left_out ? "#" : "");
  }
  return text + notes_text(scaling);
}

Json scaling_json(const Scaling& scaling) {
  Json rows = Json::array();
  const auto context = static_cast<double>(scaling.context);
  for (const ScalingRow& row : scaling.rows)
    rows.push_back(
        {{"ranks", row.ranks},
         {"hosts", row.hosts},
         {"missing", row.missing},
         {"links_carried_over", row.links_carried_over},
         {"compute_carried_over", row.compute_carried_over},
         {"compute_estimated", row.compute_estimated},
         {"encoding_left_out", row.encoding_left_out},
         {"weak", step_json(row.weak, context * static_cast<double>(row.weak_sequences))},
         {"strong", step_json(row.strong, context * static_cast<double>(scaling.sequences))},
         {"memory_bytes", json_or_null(row.memory_bytes)},
         {"checkpoint_s", json_or_null(row.checkpoint_s)},
         {"memory_copy_s", json_or_null(row.memory_copy_s)}});
  return rows;
}

}  // namespace trireme::plan
