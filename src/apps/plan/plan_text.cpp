// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_text.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

namespace trireme::plan {
namespace {

/// An amount that one rank holds or sends, with its name: a JSON key and a table row.
struct Amount {
  std::string key;
  std::string label;
  std::int64_t bytes;
};

std::vector<Amount> amounts_of(const DeckPlan& plan, std::size_t i) {
  const layout::Budget& budget = plan.budgets[i];
  std::vector<Amount> amounts;
  const auto add = [&](std::string key, std::string label, std::int64_t bytes) {
    amounts.push_back({std::move(key), std::move(label), bytes});
  };
  add("gradient_bytes", "gradients", budget.gradient_bytes);
  add("parameter_bytes", "parameters", budget.parameter_bytes);
  for (std::size_t slot = 0; slot < plan.slots.size(); ++slot)
    add(plan.slots[slot].name + "_bytes", plan.slots[slot].label, budget.state_bytes[slot]);
  if (plan.matrices)
    add("matrix_bytes", "whole matrices and scratch", budget.matrix_bytes);
  add("snapshot_bytes", "snapshot for checkpoints", budget.snapshot_bytes);
  if (budget.copies_bytes > 0)
    add("copies_bytes", "copies in memory, of two ranks", budget.copies_bytes);
  add("held_bytes", "together, without activations", budget.held_bytes());
  add("activation_bytes", "activations", static_cast<std::int64_t>(plan.activations[i].bytes()));
  add("scratch_bytes", "scratch of the model",
      static_cast<std::int64_t>(plan.activations[i].scratch().bytes()));
  add("workspace_bytes", "workspace of a GPU's libraries", plan.workspaces[i]);
  add("graph_bytes", "captured graphs, estimated", plan.graphs[i]);
  add("whole_bytes", "all together", whole_bytes(plan, i));
  add("peer_bytes", "read of other ranks of its host", budget.peer_bytes);
  if (plan.matrices)
    add("matrix_wire_bytes", "sent per step for matrices, most", budget.matrix_wire_bytes);
  add("gradient_wire_bytes", "sent per step for gradients", budget.gradient_wire_bytes);
  add("parameter_wire_bytes", "sent per step for parameters", budget.parameter_wire_bytes);
  if (budget.copies_bytes > 0)
    add("copy_wire_bytes", "sent per copy in memory",
        layout::snapshot_bytes(plan.plan, plan.slots));
  add("host_gradient_wire_bytes", "  by a host, for gradients",
      plan.host_traffic[i].gradient_bytes);
  add("host_parameter_wire_bytes", "  by a host, for parameters",
      plan.host_traffic[i].parameter_bytes);
  if (plan.matrices)
    add("host_matrix_wire_bytes", "  by a host, for matrices", plan.host_matrix_bytes);
  return amounts;
}

std::int64_t padding_of(const layout::Budget& budget) {
  std::int64_t padding = 0;
  for (const layout::BucketRow& row : budget.buckets) padding += row.padding;
  return padding;
}

/// What the figures of a GPU are and are not.
std::string gpu_note(const DeckPlan& plan) {
  if (plan.device == device::Kind::cpu)
    return {};
  return "\nnote: cuDNN's workspace is estimated from the shapes, with an allowance, since only "
         "a GPU reports it; a captured graph is counted as 10 KiB per kernel, which no GPU has "
         "measured; CUDA's context and NCCL's buffers are not counted, and copies of the state are "
         "in the host's memory\n";
}

/// The memory and traffic of each choice of parallel.shard.
std::string shardings_text(const DeckPlan& plan) {
  std::string text = fmt::format("\n{:<32}", "each rank with parallel.shard");
  for (const DType dtype : plan.dtypes)
    text += fmt::format("{:>12}{:>12}", fmt::format("held, {}", name(dtype)), "sent a step");
  text += '\n';
  for (const DeckPlan::Sharding& one : plan.shardings) {
    text += fmt::format("{:<32}", fmt::format("{}{}", word(one.shard),
                                              one.shard == plan.shard ? ", as in the deck" : ""));
    for (const layout::Budget& budget : one.budgets)
      text += fmt::format("{:>12}{:>12}", bytes_text(budget.held_bytes()),
                          bytes_text(budget.wire_bytes()));
    text += one.budgets.empty()
                ? fmt::format("  not possible: `trireme check DECK parallel.shard={}` says why\n",
                              word(one.shard))
                : "\n";
  }
  return text;
}

Json shardings_json(const DeckPlan& plan) {
  Json json;
  for (const DeckPlan::Sharding& one : plan.shardings) {
    Json& budgets = json[word(one.shard)] = Json::object();
    for (std::size_t i = 0; i < one.budgets.size(); ++i)
      budgets[name(plan.dtypes[i])] = {{"held_bytes", one.budgets[i].held_bytes()},
                                       {"wire_bytes", one.budgets[i].wire_bytes()}};
  }
  return json;
}

/// model.recompute in each dtype: a word for all blocks, or a list.
Json recompute_json(const DeckPlan& plan) {
  Json json;
  for (std::size_t i = 0; i < plan.dtypes.size(); ++i) {
    const model::RecomputeKey& words = plan.recompute[i].recompute;
    Json& value = json[name(plan.dtypes[i])];
    if (words.list() == nullptr)
      value = word(words.of(0));
    else
      for (const model::Recompute one : *words.list()) value.push_back(word(one));
  }
  return json;
}

/// What an optimizer of whole matrices computes.
std::string matrices_text(const DeckPlan& plan) {
  if (!plan.matrices)
    return {};
  return fmt::format(
      "\nmuon: {} hidden matrices, {:.4g} GFLOP per step; on the rank with most {:.4g}\n",
      plan.matrices->matrices, plan.matrices->flops / 1e9, plan.matrices->busiest_flops / 1e9);
}

}  // namespace

std::string plan_text(const DeckPlan& deck_plan) {
  const layout::Plan& plan = deck_plan.plan;
  const layout::Budget& first = deck_plan.budgets.front();
  const std::int64_t padding = padding_of(first);
  std::string text = fmt::format(
      "{} elements of {} parameters in {} buckets ({}); {} elements of padding ({:.4f} %), padding "
      "{} (granule {}), {}{}, shard: {}\n\n",
      plan.parameter_elements(), plan.parameters().size(), plan.buckets().size(),
      deck_plan.bucket_text, padding,
      100.0 * static_cast<double>(padding) / static_cast<double>(plan.flat_elements()),
      word(plan.options().padding), plan.granule(), counted(plan.all_ranks(), "rank"),
      plan.replicas() > 1 ? " with " + plan.replica_ranks().text() : "", word(deck_plan.shard));

  text += fmt::format("{:>6} {:>10} {:>13} {:>9} {:>12} {:>8} {:>10}  {}\n", "bucket", "parameters",
                      "elements", "padding", "shard", "aligned", "idle ranks", "first .. last");
  for (const layout::BucketRow& row : first.buckets) {
    const std::int64_t aligned =
        std::min(row.gradient_alignment_bytes,
                 deck_plan.budgets.back().buckets[at(row.bucket)].parameter_alignment_bytes);
    text += fmt::format("{:>6} {:>10} {:>13} {:>9} {:>12} {:>8} {:>10}  {}\n", at(row.bucket),
                        row.num_parameters, row.elements, row.padding, row.shard_elements,
                        bytes_text(aligned), row.num_padding_only_ranks,
                        plan.parameter(row.first).name +
                            (row.first == row.last ? "" : " .. " + plan.parameter(row.last).name));
  }

  if (deck_plan.sharded())
    text +=
        plan.replicas() > 1
            ? "rank r of each replica owns elements [r * shard, (r + 1) * shard) of each bucket\n"
            : "rank r owns elements [r * shard, (r + 1) * shard) of each bucket\n";

  text += fmt::format("\n{:<32}", plan.replica_ranks().equal() ? "each rank, parameters in"
                                                               : "a rank of the smallest replica");
  for (const DType dtype : deck_plan.dtypes) text += fmt::format("{:>12}", name(dtype));
  text += '\n';
  const std::vector<Amount> rows = amounts_of(deck_plan, 0);
  const std::size_t of_hosts = deck_plan.matrices ? 3 : 2;
  const bool known = deck_plan.hosts > 1 && deck_plan.transport != comm::Transport::nccl;
  const std::size_t shown = rows.size() - (known ? 0 : of_hosts);
  for (std::size_t row = 0; row < shown; ++row) {
    if (row + of_hosts == rows.size())
      text += fmt::format("sent to other hosts per step, {} hosts, {}\n", deck_plan.hosts,
                          word(deck_plan.transport));
    text += fmt::format("{:<32}", rows[row].label);
    for (std::size_t i = 0; i < deck_plan.budgets.size(); ++i)
      text += fmt::format("{:>12}", bytes_text(amounts_of(deck_plan, i)[row].bytes));
    text += '\n';
  }
  return text + shardings_text(deck_plan) + "\n" + optim::groups_text(deck_plan.groups) +
         matrices_text(deck_plan) + gpu_note(deck_plan);
}

std::string plan_json(const DeckPlan& deck_plan, const Json& scaling) {
  const layout::Plan& plan = deck_plan.plan;
  Json json = {{"ranks", plan.all_ranks()},
               {"replicas", plan.replicas()},
               {"hosts", deck_plan.hosts},
               {"transport", word(deck_plan.transport)},
               {"padding", word(plan.options().padding)},
               {"granule", plan.granule()},
               {"bucket_elements", plan.options().bucket_elements},
               {"shard", word(deck_plan.shard)},
               {"parameter_elements", plan.parameter_elements()},
               {"padding_elements", padding_of(deck_plan.budgets.front())},
               {"flat_elements", plan.flat_elements()},
               {"owned_elements", plan.owned_elements()},
               {"fingerprint", fmt::format("{:016x}", plan.fingerprint())},
               {"buckets", Json::array()},
               {"groups", Json::array()}};
  for (const layout::BucketRow& row : deck_plan.budgets.front().buckets) {
    Json names = Json::array();
    for (const ParameterIndex parameter : plan.bucket(row.bucket).parameters)
      names.push_back(plan.parameter(parameter).name);
    const layout::BucketRow& last = deck_plan.budgets.back().buckets[at(row.bucket)];
    json["buckets"].push_back({{"begin", row.begin},
                               {"elements", row.elements},
                               {"padding", row.padding},
                               {"shard_elements", row.shard_elements},
                               {"gradient_alignment_bytes", row.gradient_alignment_bytes},
                               {"parameter_alignment_bytes", last.parameter_alignment_bytes},
                               {"idle_ranks", row.num_padding_only_ranks},
                               {"parameters", names}});
  }
  for (const optim::Group& group : deck_plan.groups.all)
    json["groups"].push_back({{"match", group.match},
                              {"parameters", group.parameters},
                              {"elements", group.elements},
                              {"learning_rate", group.learning_rate},
                              {"weight_decay", group.weight_decay}});
  if (const auto& matrices = deck_plan.matrices)
    json["matrices"] = {{"number", matrices->matrices},
                        {"flops", matrices->flops},
                        {"busiest_flops", matrices->busiest_flops}};
  for (std::size_t i = 0; i < deck_plan.dtypes.size(); ++i)
    for (const Amount& amount : amounts_of(deck_plan, i))
      json["per_rank"][name(deck_plan.dtypes[i])][amount.key] = amount.bytes;
  json["recompute"] = recompute_json(deck_plan);
  json["shard_choices"] = shardings_json(deck_plan);
  json["schedule"] = schedule_json(deck_plan.schedule);
  if (!scaling.is_null())
    json["scaling"] = scaling;
  return json_text(json);
}

}  // namespace trireme::plan
