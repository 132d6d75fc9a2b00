// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_command.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "device/cuda/handle.hpp"
#include "device/device.hpp"

#include "comm/collective/traffic.hpp"
#include "ops/attention.hpp"

#include "reduce/layout_options.hpp"
#include "reduce/leaves.hpp"

#include "model/gpt.hpp"

#include "train/span_sample.hpp"

#include "cli/new_file.hpp"
#include "cli/scaling.hpp"
#include "deck/machine_file.hpp"
#include "session/machine.hpp"
#include "session/saver.hpp"
#include "text/terminal.hpp"

namespace trireme::cli {
namespace {

using trireme::session::Precision;

/// What one rank holds or sends, by name; JSON keys and table rows are made of it.
struct Amount {
  std::string key;
  std::string label;
  std::int64_t bytes;
};

std::vector<Amount> amounts_of(const DeckPlan& plan, std::size_t i) {
  const layout::Budget& budget = plan.budgets[i];
  const auto kept = static_cast<std::int64_t>(plan.activations[i].bytes());
  const auto scratch = static_cast<std::int64_t>(plan.activations[i].scratch().bytes());
  const std::int64_t workspace = plan.workspaces[i];
  std::vector<Amount> amounts = {{"gradient_bytes", "gradients", budget.gradient_bytes},
                                 {"parameter_bytes", "parameters", budget.parameter_bytes}};
  for (std::size_t slot = 0; slot < plan.slots.size(); ++slot)
    amounts.push_back(
        {plan.slots[slot].name + "_bytes", plan.slots[slot].label, budget.state_bytes[slot]});
  if (plan.matrices)
    amounts.push_back({"matrix_bytes", "whole matrices and scratch", budget.matrix_bytes});
  for (Amount& amount :
       std::vector<Amount>{{"snapshot_bytes", "snapshot for checkpoints", budget.snapshot_bytes},
                           {"held_bytes", "together, without activations", budget.held_bytes()},
                           {"activation_bytes", "activations", kept},
                           {"scratch_bytes", "scratch of the model", scratch},
                           {"workspace_bytes", "workspace of a GPU's libraries", workspace},
                           {"whole_bytes", "all together", whole_bytes(plan, i)},
                           {"peer_bytes", "read of other ranks of its host", budget.peer_bytes}})
    amounts.push_back(std::move(amount));
  if (plan.matrices)
    amounts.push_back(
        {"matrix_wire_bytes", "sent per step for matrices, most", budget.matrix_wire_bytes});
  for (Amount& amount : std::vector<Amount>{
           {"gradient_wire_bytes", "sent per step for gradients", budget.gradient_wire_bytes},
           {"parameter_wire_bytes", "sent per step for parameters", budget.parameter_wire_bytes},
           {"host_gradient_wire_bytes", "  by a host, for gradients",
            plan.host_traffic[i].gradient_bytes},
           {"host_parameter_wire_bytes", "  by a host, for parameters",
            plan.host_traffic[i].parameter_bytes}})
    amounts.push_back(std::move(amount));
  if (plan.matrices)
    amounts.push_back(
        {"host_matrix_wire_bytes", "  by a host, for matrices", plan.host_matrix_bytes});
  return amounts;
}

bool between_hosts_known(const DeckPlan& plan) {
  return plan.hosts > 1 && plan.transport != word(comm::Transport::nccl);
}

/// Of the host that sends most. Formulas are linear in the shard, so all buckets are one.
DeckPlan::HostTraffic host_traffic(const deck::JobConfig& config,
                                   const DeckPlan& plan,
                                   comm::Transport transport,
                                   const comm::Hosts& hosts,
                                   DType parameter_dtype) {
  if (transport != comm::Transport::mpi && transport != comm::Transport::hierarchical)
    return {};
  const std::int64_t shard = plan.plan.owned_elements();
  const DType wire = reduce::dtype_of(config.parallel.gradient_dtype);
  const std::int64_t times = plan.reductions_per_step;
  auto gradients =
      comm::reduce_scatter_traffic(transport, config.parallel.reduction, wire, hosts, shard);
  const auto gathered =
      comm::all_gather_traffic(transport, plan.sharded() ? parameter_dtype : wire, hosts, shard);
  if (plan.sharded())
    return {times * std::ranges::max(gradients), std::ranges::max(gathered)};
  std::ranges::transform(gradients, gathered, gradients.begin(), std::plus{});
  return {times * std::ranges::max(gradients), 0};
}

std::int64_t padding_of(const layout::Budget& budget) {
  std::int64_t padding = 0;
  for (const layout::BucketRow& row : budget.buckets) padding += row.padding;
  return padding;
}

double percent(std::int64_t part, std::int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

/// Names in the model's table are letters, digits and dots.
std::string quoted(const std::string& name) {
  return "\"" + name + "\"";
}

/// Of the largest micro-batch's attention, and of matrix products.
std::int64_t gpu_workspace(const deck::Deck& deck, DType dtype) {
  const deck::JobConfig& config = deck.config;
  return static_cast<std::int64_t>(
      device::cuda::workspace_bytes +
      ops::Attention::gpu_scratch_bytes(
          model::attention_shape(deck.shape(), 0, dtype, config.batch.micro_sequences),
          {.deterministic = config.gpu.deterministic_attention}));
}

/// What the figures of a GPU are and are not.
std::string gpu_note(const DeckPlan& plan) {
  if (plan.device == device::Kind::cpu)
    return {};
  return "\nnote: cuDNN's workspace is reckoned from the shapes, since only a GPU tells it; CUDA's "
         "context and NCCL's buffers are not counted, and the snapshot lies in the host's memory\n";
}

/// Where the batch cannot be split over the ranks, what a run on so many needs; else nothing.
std::string batch_note(const trireme::session::BatchConfig& batch, int ranks) {
  const std::int64_t unit = batch.micro_sequences * ranks;
  const data::BatchSizes sizes = batch.sizes();
  for (const data::BatchSizes::Part& part : sizes.parts())
    if (part.sequences % unit != 0)
      return fmt::format(
          "\nnote: a run on {} ranks needs another batch: {} sequences are no multiple of {} = {} "
          "micro_sequences x {} ranks\n",
          ranks, part.sequences, unit, batch.micro_sequences, ranks);
  return {};
}

/// In the largest step.
std::int64_t most_micro_steps(const trireme::session::BatchConfig& batch, int ranks) {
  return data::Batches{batch.sizes().largest(), batch.micro_sequences, ranks}.micro_steps();
}

/// Requires: `plan` has everything but budgets.
layout::BudgetOptions budget_options(const deck::JobConfig& config,
                                     const DeckPlan& plan,
                                     DType parameter_dtype) {
  layout::BudgetOptions options{
      .parameter_dtype = parameter_dtype,
      .shard = plan.shard,
      .wire_dtype = reduce::dtype_of(config.parallel.gradient_dtype),
      .partial_sums =
          reduce::num_waiting_sums(reduce::leaves_per_rank(config.parallel, plan.plan.ranks())),
      .snapshot = trireme::session::holds_snapshot(config.checkpoint, plan.device)};
  if (config.parallel.reduces_micro_steps())
    options.micro_step_reductions = plan.reductions_per_step;
  return options;
}

/// What each choice of parallel.shard would hold and send.
std::string shardings_text(const DeckPlan& plan) {
  std::string text = fmt::format("\n{:<32}", "each rank with parallel.shard");
  for (const DType dtype : plan.dtypes)
    text += fmt::format("{:>12}{:>12}", fmt::format("held, {}", name(dtype)), "sent a step");
  text += '\n';
  for (const DeckPlan::Sharding& one : plan.shardings) {
    text += fmt::format("{:<32}", fmt::format("{}{}", word(one.shard),
                                              one.shard == plan.shard ? ", as in the deck" : ""));
    for (const layout::Budget& budget : one.budgets)
      text += fmt::format("{:>12}{:>12}", bytes_text(static_cast<double>(budget.held_bytes())),
                          bytes_text(static_cast<double>(budget.wire_bytes())));
    text += one.budgets.empty() ? "  not with this reduction or order of buckets\n" : "\n";
  }
  return text;
}

/// The same for programs.
std::string shardings_json(const DeckPlan& plan) {
  std::string text = "{";
  const char* comma = "";
  for (const DeckPlan::Sharding& one : plan.shardings) {
    text += fmt::format("{}\n    \"{}\": {{", comma, word(one.shard));
    for (std::size_t i = 0; i < one.budgets.size(); ++i)
      text += fmt::format("{}\"{}\": {{\"held_bytes\": {}, \"wire_bytes\": {}}}",
                          i == 0 ? "" : ", ", name(plan.dtypes[i]), one.budgets[i].held_bytes(),
                          one.budgets[i].wire_bytes());
    text += '}';
    comma = ",";
  }
  return text + "\n  }";
}

/// What an optimizer of whole matrices computes.
std::string matrices_text(const DeckPlan& plan) {
  if (!plan.matrices)
    return {};
  return fmt::format(
      "\nmuon: {} hidden matrices, {:.4g} GFLOP per step; on the rank with most {:.4g}\n",
      plan.matrices->matrices, plan.matrices->flops / 1e9, plan.matrices->busiest_flops / 1e9);
}

/// What the record of a run on so many ranks keeps of its spans.
std::string record_note(const deck::JobConfig& config, const layout::Plan& plan) {
  if (!config.record.spans)
    return {};
  const auto spans =
      trireme::train::spans_of_a_step(most_micro_steps(config.batch, plan.ranks()),
                                      static_cast<std::int64_t>(plan.buckets().size()));
  return fmt::format(
      "\nrun.h5: {}; statistics over all ranks every {} steps\n",
      trireme::train::sample_of(config.record, plan.ranks(), config.run.steps, spans).text(),
      trireme::train::collect_every_steps);
}

DeckPlan plan_with_its_shard(const deck::Deck& deck, int ranks, int hosts) {
  const deck::JobConfig& config = deck.config;
  const auto kind = trireme::session::choose_kind(config.run.device, device::count_cuda_devices());
  trireme::session::expect_served(config.optimizer.kind, kind);
  const auto wire = kind == device::Kind::cuda ? reduce::Wire::gpus
                    : hosts == 1               ? reduce::Wire::inside_a_host
                                               : reduce::Wire::between_hosts;
  const auto parameters = model::parameter_table(deck.shape());
  DeckPlan result{
      layout::Plan(parameters, reduce::layout_options(config.parallel, parameters, ranks, wire)),
      config.parallel.shard,
      {},
      {},
      {},
      kind,
      {},
      optim::state_slots(config.optimizer),
      optim::resolve_groups(config.optimizer, parameters),
      hosts,
      {},
      {},
      {}};
  result.schedule = report::schedule_table(
      {.optimizer = config.optimizer,
       .groups = result.groups,
       .steps = config.run.steps,
       .schedule_steps = config.optimizer.schedule.steps.value_or(config.run.steps),
       .sizes = config.batch.sizes(),
       .context = deck.shape().context});
  result.matrices = optim::matrix_work(result.plan, config.optimizer, result.sharded());
  const auto placed = comm::Hosts::in_blocks(ranks, hosts);
  if (result.matrices)
    result.host_matrix_bytes = optim::matrix_bytes_between(placed, result.plan, *result.matrices);
  comm::Transport transport = config.parallel.transport;
  if (transport == comm::Transport::automatic)
    transport =
        result.device == device::Kind::cuda ? comm::Transport::nccl : comm::transport_for(placed);
  result.transport = word(transport);
  result.bucket_text = reduce::bucket_text(config.parallel, result.plan);
  if (config.run.precision != Precision::bf16)
    result.dtypes.push_back(DType::f32);
  if (config.run.precision != Precision::fp32)
    result.dtypes.push_back(DType::bf16);
  if (config.parallel.reduces_micro_steps())
    result.reductions_per_step = most_micro_steps(config.batch, ranks);
  for (const DType dtype : result.dtypes) {
    const layout::BudgetOptions options = budget_options(config, result, dtype);
    layout::Budget& budget =
        result.budgets.emplace_back(layout::budget_of(result.plan, result.slots, options));
    if (result.matrices) {
      budget.matrix_bytes = result.matrices->bytes();
      budget.matrix_wire_bytes = result.matrices->sent_bytes;
    }
    if (transport == comm::Transport::shared_memory || transport == comm::Transport::hierarchical)
      budget.peer_bytes =
          layout::peer_bytes(result.plan, options, static_cast<int>(placed.members(0).size()));
    result.activations.push_back(
        model::activation_plan(deck.shape(), dtype, config.batch.micro_sequences, result.device));
    const bool gpu = result.device == device::Kind::cuda;
    result.workspaces.push_back(gpu ? gpu_workspace(deck, dtype) : 0);
    result.host_traffic.push_back(host_traffic(config, result, transport, placed, dtype));
  }
  return result;
}

}  // namespace

DeckPlan plan_of(const deck::Deck& deck, int ranks, int hosts) {
  DeckPlan result = plan_with_its_shard(deck, ranks, hosts);
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
    DeckPlan::Sharding& one = result.shardings.emplace_back();
    one.shard = shard;
    if (shard == layout::Shard::gradients && !deck.config.parallel.can_shard_gradients())
      continue;
    deck::Deck other = deck;
    other.config.parallel.shard = shard;
    if (shard == layout::Shard::gradients)
      other.config.parallel.reduce_every = reduce::ReduceEvery::automatic;
    one.budgets = plan_with_its_shard(other, ranks, hosts).budgets;
  }
  return result;
}

std::int64_t whole_bytes(const DeckPlan& plan, std::size_t dtype) {
  return plan.budgets[dtype].held_bytes() +
         static_cast<std::int64_t>(plan.activations[dtype].bytes()) +
         static_cast<std::int64_t>(plan.activations[dtype].scratch().bytes()) +
         plan.workspaces[dtype];
}

std::string plan_text(const DeckPlan& deck_plan) {
  const layout::Plan& plan = deck_plan.plan;
  const layout::Budget& first = deck_plan.budgets.front();
  const std::int64_t padding = padding_of(first);
  std::string text = fmt::format(
      "{} elements of {} parameters in {} buckets ({}); {} elements of padding ({:.4f} %), padding "
      "{} "
      "(granule {}), {} {}, shard: {}\n\n",
      plan.parameter_elements(), plan.parameters().size(), plan.buckets().size(),
      deck_plan.bucket_text, padding, percent(padding, plan.flat_elements()),
      word(plan.options().padding), plan.granule(), plan.ranks(),
      plan.ranks() == 1 ? "rank" : "ranks", word(deck_plan.shard));

  text += fmt::format("{:>6} {:>10} {:>13} {:>9} {:>12} {:>8} {:>10}  {}\n", "bucket", "parameters",
                      "elements", "padding", "shard", "aligned", "idle ranks", "first .. last");
  for (const layout::BucketRow& row : first.buckets) {
    const std::int64_t aligned =
        std::min(row.gradient_alignment_bytes,
                 deck_plan.budgets.back().buckets[at(row.bucket)].parameter_alignment_bytes);
    text += fmt::format("{:>6} {:>10} {:>13} {:>9} {:>12} {:>8} {:>10}  {}\n", at(row.bucket),
                        row.num_parameters, row.elements, row.padding, row.shard_elements,
                        bytes_text(static_cast<double>(aligned)), row.num_padding_only_ranks,
                        plan.parameter(row.first).name +
                            (row.first == row.last ? "" : " .. " + plan.parameter(row.last).name));
  }

  if (deck_plan.sharded())
    text += "rank r owns elements [r * shard, (r + 1) * shard) of each bucket\n";

  text += fmt::format("\n{:<32}", "each rank, parameters in");
  for (const DType dtype : deck_plan.dtypes) text += fmt::format("{:>12}", name(dtype));
  text += '\n';
  const std::vector<Amount> rows = amounts_of(deck_plan, 0);
  const std::size_t of_hosts = deck_plan.matrices ? 3 : 2;
  const std::size_t shown = rows.size() - (between_hosts_known(deck_plan) ? 0 : of_hosts);
  for (std::size_t row = 0; row < shown; ++row) {
    if (row + of_hosts == rows.size())
      text += fmt::format("sent to other hosts per step, {} hosts, {}\n", deck_plan.hosts,
                          deck_plan.transport);
    text += fmt::format("{:<32}", rows[row].label);
    for (std::size_t i = 0; i < deck_plan.budgets.size(); ++i)
      text += fmt::format("{:>12}",
                          bytes_text(static_cast<double>(amounts_of(deck_plan, i)[row].bytes)));
    text += '\n';
  }
  return text + shardings_text(deck_plan) + "\n" + optim::groups_text(deck_plan.groups) +
         matrices_text(deck_plan) + gpu_note(deck_plan);
}

std::string plan_json(const DeckPlan& deck_plan, const std::string& scaling) {
  const layout::Plan& plan = deck_plan.plan;
  std::string text = fmt::format(
      "{{\n  \"ranks\": {},\n  \"hosts\": {},\n  \"transport\": \"{}\",\n  \"padding\": \"{}\",\n  "
      "\"granule\": {},\n  \"bucket_elements\": "
      "{},\n  \"shard\": \"{}\",\n  \"parameter_elements\": {},\n  \"padding_elements\": {},\n  "
      "\"flat_elements\": {},\n  \"owned_elements\": {},\n  \"fingerprint\": \"{:016x}\",\n",
      plan.ranks(), deck_plan.hosts, deck_plan.transport, word(plan.options().padding),
      plan.granule(), plan.options().bucket_elements, word(deck_plan.shard),
      plan.parameter_elements(), padding_of(deck_plan.budgets.front()), plan.flat_elements(),
      plan.owned_elements(), plan.fingerprint());
  text += "  \"buckets\": [";
  const char* comma = "";
  for (const layout::BucketRow& row : deck_plan.budgets.front().buckets) {
    std::string names;
    for (const ParameterIndex parameter : plan.bucket(row.bucket).parameters)
      names += (names.empty() ? "" : ", ") + quoted(plan.parameter(parameter).name);
    text += fmt::format(
        "{}\n    {{\"begin\": {}, \"elements\": {}, \"padding\": {}, \"shard_elements\": {}, "
        "\"gradient_alignment_bytes\": {}, \"parameter_alignment_bytes\": {}, \"idle_ranks\": {}, "
        "\"parameters\": [{}]}}",
        comma, row.begin, row.elements, row.padding, row.shard_elements,
        row.gradient_alignment_bytes,
        deck_plan.budgets.back().buckets[at(row.bucket)].parameter_alignment_bytes,
        row.num_padding_only_ranks, names);
    comma = ",";
  }
  text += "\n  ],\n  \"groups\": [";
  comma = "";
  for (const optim::Group& group : deck_plan.groups.all) {
    text += fmt::format(
        "{}\n    {{\"match\": {}, \"parameters\": {}, \"elements\": {}, \"learning_rate\": "
        "{:.9g}, \"weight_decay\": {:.9g}}}",
        comma, text::json_string(group.match), group.parameters, group.elements,
        group.learning_rate, group.weight_decay);
    comma = ",";
  }
  text += "\n  ],\n";
  if (deck_plan.matrices)
    text += fmt::format(
        "  \"matrices\": {{\"number\": {}, \"flops\": {:.17g}, \"busiest_flops\": {:.17g}}},\n",
        deck_plan.matrices->matrices, deck_plan.matrices->flops, deck_plan.matrices->busiest_flops);
  text += "  \"per_rank\": {";
  comma = "";
  for (std::size_t i = 0; i < deck_plan.dtypes.size(); ++i) {
    std::string amounts;
    for (const Amount& amount : amounts_of(deck_plan, i))
      amounts += fmt::format("{}\"{}\": {}", amounts.empty() ? "" : ", ", amount.key, amount.bytes);
    text += fmt::format("{}\n    \"{}\": {{{}}}", comma, name(deck_plan.dtypes[i]), amounts);
    comma = ",";
  }
  text += "\n  },\n  \"shard_choices\": " + shardings_json(deck_plan) +
          ",\n  \"schedule\": " + report::schedule_json(deck_plan.schedule);
  return text + (scaling.empty() ? "" : ",\n  \"scaling\": " + scaling) + "\n}\n";
}

deck::Deck parse_for_plan(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          deck::Circumstances circumstances) {
  circumstances.trains = false;
  return deck::parse(deck::read_deck_file(deck_path), deck_path, overrides, circumstances);
}

std::string plan_command(const std::string& deck_path,
                         const std::vector<std::string>& overrides,
                         const deck::Circumstances& circumstances,
                         const PlanOutput& output) {
  const deck::Deck deck = parse_for_plan(deck_path, overrides, circumstances);
  if (circumstances.hosts > circumstances.ranks)
    throw UserError(fmt::format("--hosts {}: {} {} cannot be on so many", circumstances.hosts,
                                circumstances.ranks, circumstances.ranks == 1 ? "rank" : "ranks"));
  const DeckPlan plan = plan_of(deck, circumstances.ranks, circumstances.hosts);
  std::optional<Scaling> scaling;
  if (!output.machine_path.empty())
    scaling = scaling_of(deck, deck::read_machine(output.machine_path), output.scaling_ranks,
                         circumstances.hosts);
  if (!output.json_path.empty())
    write_new_file(output.json_path, plan_json(plan, scaling ? scaling_json(*scaling) : ""));
  return plan_text(plan) + (output.schedule ? "\n" + report::schedule_text(plan.schedule) : "") +
         record_note(deck.config, plan.plan) + batch_note(deck.config.batch, circumstances.ranks) +
         (scaling ? "\n" + scaling_text(*scaling) : "");
}

}  // namespace trireme::cli
